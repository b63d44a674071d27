//! Doors: how bytes of a client come in and go out. Below here nothing knows which transport it is.

#[cfg(feature = "http")]
pub mod http;
pub mod stdio;
