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
