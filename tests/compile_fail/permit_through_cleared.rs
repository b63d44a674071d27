//! A clearance is one of two proofs, and takes nothing in the place of either.

use gatewright::gate::permit::{Cleared, Permit, Ungated};
use gatewright::wire::frame::Request;

fn judged(request: Request) -> Cleared {
    Cleared::Permit(request) //~ E0308
}

fn ungated(request: Request) -> Cleared {
    Cleared::Ungated(request) //~ E0308
}

fn converted(request: Request) -> Cleared {
    request.into() //~ E0277
}

fn swapped(ungated: Ungated) -> Cleared {
    Cleared::Permit(ungated) //~ E0308
}

fn out_of_nothing() -> Permit {
    Permit::default() //~ E0599
}

fn main() {}
