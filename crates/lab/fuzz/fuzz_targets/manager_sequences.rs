#![no_main]
#[path = "../manager/mod.rs"]
#[allow(dead_code)]
mod manager;
libfuzzer_sys::fuzz_target!(|data: &[u8]| manager::sequences(data));
