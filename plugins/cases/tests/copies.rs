//! What is kept twice, so that each policy copies out whole, is the same in both places.

#[test]
fn both_policies_read_json_alike() {
    assert_eq!(
        include_str!("../../allowlist/src/json.rs"),
        include_str!("../../paths/src/json.rs")
    );
}

#[test]
fn bindings_are_the_same() {
    assert_eq!(
        include_str!("../../allowlist/src/bindings.rs"),
        include_str!("../../paths/src/bindings.rs")
    );
    assert_eq!(
        include_str!("../../allow-all/src/bindings.rs"),
        include_str!("../../deny-all/src/bindings.rs")
    );
}

#[test]
fn every_folder_brings_its_linker() {
    let configs = [
        include_str!("../../allow-all/.cargo/config.toml"),
        include_str!("../../allowlist/.cargo/config.toml"),
        include_str!("../../deny-all/.cargo/config.toml"),
        include_str!("../../paths/.cargo/config.toml"),
    ];
    assert!(configs[0].contains("linker = \"wasm-component-ld\""));
    assert!(configs.iter().all(|config| *config == configs[0]));
}
