//! An upstream takes a permit by value, not a request or a line.

use gatewright::upstream::Upstream;
use gatewright::wire::frame::Request;

async fn call(upstream: &Upstream, request: Request) {
    let _answer = upstream.forward(request, 1, Box::default()).await; //~ E0308
}

fn main() {}
