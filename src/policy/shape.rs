//! The first look at a component's bytes, before anything is compiled: is it one at all, and is
//! there a part of it that is too large (ruling G6).
//!
//! This is not validation. The engine validates; what is refused here it would take, or would
//! refuse after a long time, or in words that help nobody.

use wasmparser::{CanonicalFunction, CanonicalOption, Encoding, Parser, Payload};

use super::limits::Limits;

/// The first bytes of every WebAssembly file.
pub(super) const MAGIC: &[u8] = b"\0asm";

/// The first bytes of what a compiler of this machine makes.
const MACHINE_CODE: &[u8] = b"\x7fELF";

/// A page of linear memory in bytes, as a power of two.
const PAGE_BYTES_LOG2: u32 = 16;

/// What is wrong at first sight.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Misshapen {
    /// A core module.
    CoreModule,
    /// Cut off, or garbled.
    Broken(String),
    /// A part is past a limit.
    TooLarge(String),
    /// Texts in another encoding than UTF-8.
    Encoding(&'static str),
}

impl From<wasmparser::BinaryReaderError> for Misshapen {
    fn from(error: wasmparser::BinaryReaderError) -> Self {
        Self::Broken(error.to_string())
    }
}

/// Whether these bytes are machine code.
pub(super) fn is_machine_code(bytes: &[u8]) -> bool {
    bytes.starts_with(MACHINE_CODE)
}

/// Looks at every section once.
pub(super) fn check(bytes: &[u8], limits: &Limits) -> Result<(), Misshapen> {
    if Parser::is_core_wasm(bytes) {
        return Err(Misshapen::CoreModule);
    }
    let mut depth = 0_usize;
    let mut data_bytes = 0_usize;
    for payload in Parser::new(0).parse_all(bytes) {
        match payload? {
            Payload::Version { encoding, .. } => {
                // Core modules lie in components, and are no components themselves.
                depth += usize::from(encoding == Encoding::Component);
                within("components are nested", depth, limits.nesting_max, "deep")?;
            }
            Payload::ComponentSection { .. } | Payload::ModuleSection { .. } => {}
            Payload::End(_) => depth = depth.saturating_sub(1),
            Payload::ComponentCanonicalSection(functions) => {
                for function in functions {
                    encoding(&function?)?;
                }
            }
            Payload::MemorySection(memories) => {
                for memory in memories {
                    let memory = memory?;
                    let page = memory.page_size_log2.unwrap_or(PAGE_BYTES_LOG2);
                    let bytes = u128::from(memory.initial) << page.min(PAGE_BYTES_LOG2);
                    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
                    within("a memory starts with", bytes, limits.memory_bytes_max, "bytes")?;
                }
            }
            Payload::TableSection(tables) => {
                for table in tables {
                    let elements = usize::try_from(table?.ty.initial).unwrap_or(usize::MAX);
                    within(
                        "a table starts with",
                        elements,
                        limits.table_elements_max,
                        "elements",
                    )?;
                }
            }
            Payload::DataSection(segments) => {
                for segment in segments {
                    data_bytes = data_bytes.saturating_add(segment?.data.len());
                }
                within(
                    "the data segments have",
                    data_bytes,
                    limits.memory_bytes_max,
                    "bytes",
                )?;
            }
            Payload::CodeSectionEntry(body) => {
                let bytes = body.as_bytes().len();
                within(
                    "a function has",
                    bytes,
                    limits.function_bytes_max,
                    "bytes of code",
                )?;
            }
            // Everything else is the engine's to judge.
            _ => {}
        }
    }
    Ok(())
}

/// The names that the outermost component exports, as far as its bytes can be read.
pub(super) fn exports(bytes: &[u8]) -> Vec<String> {
    let mut depth = 0_usize;
    let mut names = Vec::new();
    for payload in Parser::new(0).parse_all(bytes) {
        match payload {
            Ok(Payload::Version { .. }) => depth += 1,
            Ok(Payload::End(_)) => depth = depth.saturating_sub(1),
            Ok(Payload::ComponentExportSection(exports)) if depth == 1 => {
                names.extend(
                    exports
                        .into_iter()
                        .flatten()
                        .map(|export| export.name.name.to_owned()),
                );
            }
            Ok(_) => {}
            Err(_) => break,
        }
    }
    names
}

fn within(what: &str, actual: usize, max: usize, unit: &str) -> Result<(), Misshapen> {
    if actual <= max {
        return Ok(());
    }
    Err(Misshapen::TooLarge(format!(
        "{what} {actual} {unit}; the limit is {max}"
    )))
}

fn encoding(function: &CanonicalFunction) -> Result<(), Misshapen> {
    let (CanonicalFunction::Lift { options, .. } | CanonicalFunction::Lower { options, .. }) = function
    else {
        return Ok(());
    };
    for option in options {
        match option {
            CanonicalOption::UTF16 => return Err(Misshapen::Encoding("UTF-16")),
            CanonicalOption::CompactUTF16 => return Err(Misshapen::Encoding("latin1+UTF-16")),
            CanonicalOption::UTF8
            | CanonicalOption::Memory(_)
            | CanonicalOption::Realloc(_)
            | CanonicalOption::PostReturn(_)
            | CanonicalOption::Async
            | CanonicalOption::Callback(_)
            | CanonicalOption::CoreType(_)
            | CanonicalOption::Gc => {}
        }
    }
    Ok(())
}
