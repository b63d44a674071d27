//! The fields of a permit are private.

use gatewright::gate::permit::Permit;
use gatewright::vocabulary::DecisionId;
use gatewright::wire::frame::Request;

fn forge(request: Request, decision_id: DecisionId) -> Permit {
    Permit { request, decision_id } //~ E0451
}

fn main() {}
