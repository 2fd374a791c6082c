//! `gguf_model` of lathe-fuzz.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| lathe_fuzz::run("gguf_model", data));
