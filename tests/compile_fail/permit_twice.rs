//! A permit is used up by forwarding: it is no copy, and cannot be cloned.

use gatewright::gate::permit::{Cleared, Permit};

fn twice(permit: Permit) -> (Cleared, Cleared) {
    (Cleared::Permit(permit), Cleared::Permit(permit)) //~ E0382
}

fn copied(permit: &Permit) -> Permit {
    permit.clone() //~ E0308
}

fn main() {}
