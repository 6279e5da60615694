#![no_main]
#[path = "../nbd.rs"]
#[allow(dead_code)]
mod nbd;
libfuzzer_sys::fuzz_target!(|data: &[u8]| nbd::requests(data));
