//! Doors: how bytes of a client come in and go out. Below here nothing knows which transport it is.

pub mod stdio;
