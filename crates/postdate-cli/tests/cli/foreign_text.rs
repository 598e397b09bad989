//! Text that comes from anybody is harmless to a terminal.

use serde_json::json;

use crate::{place::Place, queues::fill};

/// Escape sequences of both kinds, a title, controls of direction.
const HOSTILE: &str = "\u{1b}[31m\u{9b}2J\u{1b}]0;owned\u{7}\u{202e}\u{2066}\u{8}";

fn assert_harmless(output: &str) {
    let acts = |c: char| {
        c != '\n' && c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    assert!(!output.chars().any(acts), "{output:?}");
    assert!(output.contains("\\u{1b}") || output.contains("\\u{202e}"), "{output:?}");
}

#[test]
fn hostile_bodies_and_headers_are_written_out() {
    let place = Place::new();
    let header = format!("tenant={HOSTILE}");
    place.ok(&["send", "q", HOSTILE, "--id", "a", "--header", &header, "--in", "1h"]);
    assert_harmless(&place.ok(&["show", "a"]).stdout);

    fill(&place, "q", &[HOSTILE]);
    assert_harmless(&place.ok(&["queue", "browse", "q"]).stdout);
    assert_harmless(&place.ok(&["receive", "q"]).stdout);
    assert_eq!(place.one(&["show", "a"])["body"], json!({"text": HOSTILE}), "machines get it as it is");
}

#[test]
fn hostile_names_and_ids_are_written_out() {
    let place = Place::new();
    let name = "user\u{202e}nimda";
    assert_harmless(&place.ok(&["queue", "create", name]).stdout);
    assert_harmless(&place.ok(&["queue", "list"]).stdout);
    assert_harmless(&place.ok(&["send", name, "x", "--id", name, "--in", "1h"]).stdout);
    assert_harmless(&place.ok(&["list"]).stdout);
    assert_harmless(&place.ok(&["show", name]).stdout);
    assert_harmless(&place.ok(&["cancel", name]).stdout);
    assert_harmless(&place.run(&["show", name]).stderr);
    assert_harmless(&place.run(&["queue", "browse", "none\u{202e}"]).stderr);
}

#[test]
fn hostile_arguments_are_written_out_in_the_complaint_about_them() {
    let place = Place::new();
    for args in [&["list", "--due-before", HOSTILE][..], &["show", HOSTILE], &[HOSTILE]] {
        let ran = place.run(args);
        assert_eq!(ran.code, 2);
        assert_harmless(&ran.stderr);
    }
}
