//! The field of what is relayed is private: nobody can write a line of their own.

use gatewright::gate::permit::Relay;

fn forge(line: &'static str) -> Relay {
    Relay { line: line.into(), cancels: None } //~ E0451
}

fn main() {}
