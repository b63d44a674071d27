//! Notifications and answers are relayed as they were read: nobody can write a call into one.

use gatewright::gate::permit::Relay;
use gatewright::wire::era::Era;
use gatewright::wire::frame::{Notification, Request, Response};

const CALL: &str = "0}}\n{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\"";

fn in_an_id(response: &Response) -> Relay {
    Relay::response(response, CALL) //~ E0624
}

fn in_a_parameter(notification: &Notification) -> Option<Relay> {
    Relay::notification(&notification.with_param("x", Some(CALL)), Era::Handshake) //~ E0624
}

fn in_a_request(request: Request) -> Request {
    request.with_param("x", Some(CALL)) //~ E0624
}

fn main() {}
