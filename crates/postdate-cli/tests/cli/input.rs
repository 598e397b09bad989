//! Requests that are wrong, and secrets in them.

use serde_json::Value;

use crate::place::Place;

#[test]
fn every_wrong_request_is_refused_with_the_next_step() {
    let place = Place::new();
    place.ok(&["setup"]);
    let long = "x".repeat(251);
    for (args, advice) in [
        (&["list", "--store", "postdate.db"][..], "sqlite:postdate.db"),
        (&["list", "--store", ""], "sqlite:postdate.db"),
        (&["list", "--store", "redis:x"], "sqlite:"),
        (&["list", "--store", "mssql://host/db"], "does not contain"),
        (&["show", ""], "is empty"),
        (&["show", &long], "longer than 250"),
        (&["show", "a\nb"], "control character"),
        (&["send", "", "x"], "is empty"),
        (&["send", "q"], "--body-file"),
        (&["send", "q", "x", "--body-file", "f"], "cannot be used with"),
        (&["send", "q", "--body-file", "nowhere"], "give a file"),
        (&["send", "q", "--body-file", "."], "give a file"),
        (&["send", "q", "x", "--header", "novalue"], "tenant=acme"),
        (&["send", "q", "x", "--header", "=v"], "tenant=acme"),
        (&["send", "q", "x", "--in", "soon"], "30m"),
        (&["send", "q", "x", "--in", "-5m"], "negative"),
        (&["send", "q", "x", "--in", "9999y"], "year 9999"),
        (&["send", "q", "x", "--at", "tomorrow-ish"], "2026-12-25T08:00:00Z"),
        (&["send", "q", "x", "--in", "5m", "--at", "2026-01-01"], "cannot be used with"),
        (&["send", "q", "x", "--endpoint", ""], "is empty"),
        (&["reschedule", "a"], "--now"),
        (&["reschedule", "a", "--now", "--in", "5m"], "cannot be used with"),
        (&["errors", "retry"], "IDS"),
        (&["errors", "retry", "a", "--all"], "cannot be used with"),
        (&["receive", "q", "--count", "0"], "0"),
        (&["run", "--batch-size", "0"], "0"),
        (&["nonsense"], "--help"),
        (&[], "Usage"),
    ] {
        let ran = place.run(args);
        assert_eq!(ran.code, 2, "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(advice), "{args:?}: {}", ran.stderr);
        assert!(ran.stdout.is_empty(), "{args:?}: {}", ran.stdout);
    }
}

#[test]
fn a_wrong_request_is_told_to_machines_in_json() {
    let place = Place::new();
    for args in [&["send", "q", "--json"][..], &["list", "--store", "nonsense", "--json"]] {
        let ran = place.run(args);
        let told: Value = serde_json::from_str(&ran.stderr).unwrap();
        assert_eq!((&told["error"], &told["exit_code"]), (&"usage".into(), &2.into()), "{told}");
        assert!(!told["message"].as_str().unwrap().is_empty());
    }
}

#[test]
fn a_body_that_is_too_large_is_refused_and_nothing_is_stored() {
    let place = Place::new();
    std::fs::File::create(place.path().join("huge")).unwrap().set_len(1 << 32).unwrap();
    let ran = place.run(&["send", "q", "--body-file", "huge", "--in", "1h"]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(place.json(&["list"]).is_empty());
}

#[test]
fn a_place_that_cannot_hold_a_store_is_refused() {
    let place = Place::new();
    for store in ["sqlite:no/such/directory/x.db", "sqlite:."] {
        let ran = place.run(&["setup", "--store", store]);
        assert_eq!(ran.code, 7, "{store}: {}", ran.stderr);
    }
}

#[test]
fn no_secret_of_a_store_url_is_shown_and_the_variable_is_recommended() {
    let place = Place::new();
    for url in ["mssql://me:s3cret@host/db", "nosuch://me:s3cret@host/?password=s3cret", "s3cret"] {
        for flag in [&["--json"][..], &["-vv"], &[]] {
            let ran = place.run(&[&["list", "--store", url], flag].concat());
            assert_eq!(ran.code, 2);
            assert!(!format!("{}{}", ran.stdout, ran.stderr).contains("s3cret@"), "{}", ran.stderr);
            assert!(!ran.stderr.contains("me:s3cret") && !ran.stderr.contains("=s3cret"), "{}", ran.stderr);
        }
    }
    let url = "mssql://me:s3cret@host/db";
    assert!(place.run(&["list", "--store", url]).stderr.contains("POSTDATE_STORE"));
    let by_variable = place.command(&["list"]).env("POSTDATE_STORE", url).output().unwrap();
    assert!(!String::from_utf8(by_variable.stderr).unwrap().contains("POSTDATE_STORE"));
    let help = place.command(&["--help"]).env("POSTDATE_STORE", url).output().unwrap();
    assert!(!String::from_utf8(help.stdout).unwrap().contains("s3cret"));
}

#[test]
fn completions_are_there_for_every_shell() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        assert!(place.ok(&["completions", shell]).stdout.contains("reschedule"), "{shell}");
    }
}
