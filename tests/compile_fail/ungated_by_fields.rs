//! What meets no seam is sorted out by its method, not by whoever calls.

use gatewright::gate::permit::Ungated;
use gatewright::wire::frame::Request;

fn forge(request: Request) -> Ungated {
    Ungated { request } //~ E0451
}

fn main() {}
