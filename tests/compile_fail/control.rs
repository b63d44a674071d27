//! What is allowed: a permit that the gate made is given away.

use gatewright::gate::permit::{Cleared, Permit};

fn used(permit: Permit) -> Cleared {
    let _decision = permit.decision_id();
    Cleared::Permit(permit)
}

fn main() {
    let _used: fn(Permit) -> Cleared = used;
}
