//! The field of what is relayed is private: nobody can write a line of their own.

use gatewright::gate::permit::Relay;

fn forge(line: &'static str) -> Relay {
    Relay { line: line.into() } //~ E0451
}

fn main() {}
