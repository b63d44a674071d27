//! Arbitrary bytes as a client's frame.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gatewright_fuzz::client_frame(bytes));
