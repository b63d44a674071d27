//! Arbitrary bytes as an upstream's line.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gatewright_fuzz::upstream_frame(bytes));
