//! What a component is made of, read from its bytes: nothing is compiled, and nothing runs.

use wasmparser::{Encoding, KnownCustom, Parser, Payload, ProducersSectionReader};

use super::contract::{CONFIGURABLE, VISIBILITY, serves};
use super::limits::{Grants, PolicySettings};
use super::load::{LoadError, Request, component_bytes, requests};
use crate::vocabulary::Digest;

/// What a component is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anatomy {
    /// Digest over the component's bytes alone.
    pub digest: Digest,
    /// The world of the contract that its exports fit.
    pub world: &'static str,
    /// What it exports.
    pub exports: Vec<String>,
    /// What it imports, each with what it would be given.
    pub requests: Vec<Request>,
    /// Sizes in bytes.
    pub bytes: Bytes,
    /// Core modules in it.
    pub modules: usize,
    /// Memories that its modules define, and the bytes that they start with.
    pub memories: (usize, u64),
    /// What made it: field (such as `language`), name and version, each once, in the order of the file.
    pub producers: Vec<(String, String, String)>,
}

/// Sizes of a component, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bytes {
    /// All of it.
    pub whole: usize,
    /// The bodies of functions.
    pub code: usize,
    /// Contents of memories.
    pub data: usize,
    /// Names, producers, debug information and the like, which no judgement needs.
    pub custom: usize,
}

/// A page of linear memory in bytes, as a power of two.
const PAGE_BYTES_LOG2: u32 = 16;

impl Anatomy {
    /// Reads the component of these settings.
    ///
    /// # Errors
    ///
    /// [`LoadError`] when the file cannot be read, or is no component.
    pub fn of(settings: &PolicySettings) -> Result<Self, LoadError> {
        let bytes = component_bytes(settings)?;
        Self::read(&bytes, &settings.grants).map_err(|error| LoadError::NotWasm {
            policy: settings.name.clone(),
            reason: error.to_string(),
        })
    }

    fn read(bytes: &[u8], grants: &Grants) -> wasmparser::Result<Self> {
        let mut anatomy = Self {
            digest: Digest::of(bytes),
            world: "",
            exports: Vec::new(),
            requests: Vec::new(),
            bytes: Bytes {
                whole: bytes.len(),
                ..Bytes::default()
            },
            modules: 0,
            memories: (0, 0),
            producers: Vec::new(),
        };
        let mut imports = Vec::new();
        let mut depth = 0_usize;
        for payload in Parser::new(0).parse_all(bytes) {
            match payload? {
                Payload::Version { encoding, .. } => {
                    depth += 1;
                    anatomy.modules += usize::from(encoding == Encoding::Module);
                }
                Payload::End(_) => depth = depth.saturating_sub(1),
                Payload::ComponentImportSection(section) if depth == 1 => {
                    for import in section {
                        imports.push(import?.name.name.to_owned());
                    }
                }
                Payload::ComponentExportSection(section) if depth == 1 => {
                    for export in section {
                        anatomy.exports.push(export?.name.name.to_owned());
                    }
                }
                Payload::MemorySection(section) => {
                    for memory in section {
                        let memory = memory?;
                        let page = memory.page_size_log2.unwrap_or(PAGE_BYTES_LOG2);
                        let start = memory.initial.saturating_mul(1 << page.min(PAGE_BYTES_LOG2));
                        anatomy.memories.0 += 1;
                        anatomy.memories.1 = anatomy.memories.1.saturating_add(start);
                    }
                }
                Payload::CodeSectionEntry(body) => anatomy.bytes.code += body.as_bytes().len(),
                Payload::DataSection(section) => {
                    for segment in section {
                        anatomy.bytes.data += segment?.data.len();
                    }
                }
                Payload::CustomSection(section) => {
                    anatomy.bytes.custom += section.data().len();
                    if let KnownCustom::Producers(producers) = section.as_known() {
                        anatomy.add_producers(producers)?;
                    }
                }
                _ => {}
            }
        }
        anatomy.world = world(&anatomy.exports);
        anatomy.requests = requests(&imports, grants);
        Ok(anatomy)
    }

    fn add_producers(&mut self, section: ProducersSectionReader<'_>) -> wasmparser::Result<()> {
        for field in section {
            let field = field?;
            for value in field.values {
                let value = value?;
                let producer = (
                    field.name.to_owned(),
                    value.name.to_owned(),
                    value.version.to_owned(),
                );
                if !self.producers.contains(&producer) {
                    self.producers.push(producer);
                }
            }
        }
        Ok(())
    }
}

/// The world of `wit/policy.wit` that these exports fit. Whether there is an authorizer is for loading to say.
fn world(exports: &[String]) -> &'static str {
    let has = |interface| exports.iter().any(|export| serves(export, interface));
    match (has(CONFIGURABLE), has(VISIBILITY)) {
        (false, false) => "policy-plugin",
        (true, false) => "configurable-policy-plugin",
        (false, true) => "visibility-policy-plugin",
        (true, true) => "configurable-visibility-policy-plugin",
    }
}
