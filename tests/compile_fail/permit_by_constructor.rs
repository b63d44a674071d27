//! `Permit::new` belongs to the gate.

use gatewright::gate::permit::Permit;
use gatewright::vocabulary::DecisionId;
use gatewright::wire::frame::Request;

fn forge(request: Request, decision_id: DecisionId) -> Permit {
    Permit::new(request, decision_id) //~ E0624
}

fn main() {}
