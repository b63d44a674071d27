//! The `gatewright` program.

fn main() {}
