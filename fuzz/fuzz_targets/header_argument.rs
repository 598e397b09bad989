#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| postdate_fuzz::run("header_argument", input));
