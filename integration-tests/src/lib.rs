//! What the tests that span crates stand on: the example in the README compiles as it is printed there.

#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
