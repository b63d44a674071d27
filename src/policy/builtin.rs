//! The standard policies that the program carries, so that a first gate needs no file.
//!
//! Their sources are under `plugins/`. The components are checked in, because building the host
//! must not depend on a WebAssembly target; `cargo xtask plugins --check` holds them against the
//! sources. They lie under `src/` because a package leaves out every folder with a manifest of its
//! own, and `plugins/` has one.

/// The names that may follow `builtin:`.
pub const NAMES: &[&str] = &["allow-all", "allowlist", "deny-all", "paths"];

/// The component of a standard policy; none for a name that is not in [`NAMES`].
#[must_use]
pub fn builtin(name: &str) -> Option<&'static [u8]> {
    match name {
        "allow-all" => Some(include_bytes!("carried/allow-all.wasm")),
        "allowlist" => Some(include_bytes!("carried/allowlist.wasm")),
        "deny-all" => Some(include_bytes!("carried/deny-all.wasm")),
        "paths" => Some(include_bytes!("carried/paths.wasm")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{NAMES, builtin};

    #[test]
    fn every_name_has_a_component_of_its_own() {
        /// The preamble of a component: magic number, version 13, layer 1.
        const COMPONENT: &[u8] = b"\0asm\x0d\0\x01\0";
        for (at, name) in NAMES.iter().enumerate() {
            let component = builtin(name).unwrap();
            assert!(component.starts_with(COMPONENT), "{name}");
            assert!(
                NAMES[..at].iter().all(|other| builtin(other) != Some(component)),
                "{name}"
            );
        }
        assert_eq!(None, builtin("allow"));
        assert_eq!(None, builtin(""));
    }
}
