//! What the binary reads, tried with seeds and random inputs. `fuzz/` runs the same for longer.

#[path = "../../../fuzz/src/arguments.rs"]
mod arguments;
#[path = "../../../fuzz/src/brief.rs"]
mod brief;

#[test]
fn no_input_makes_a_parser_of_the_binary_fail() {
    brief::briefly(arguments::TARGETS);
}
