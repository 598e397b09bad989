//! bench.

use crate::place::Place;

#[test]
fn a_scenario_is_measured_and_leaves_nothing_behind() {
    let place = Place::new();
    let names = place.json(&["bench", "--list"]);
    let name = names[0]["name"].as_str().unwrap();
    let report = place.one(&["bench", name, "--quick", "--quiet"]);
    let row = &report["rows"][0];
    assert_eq!(row["name"], names[0]["name"]);
    assert!(row["ours"]["rate"].as_f64().unwrap() > 0.0, "{row}");
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
}

#[test]
fn an_unknown_scenario_is_refused() {
    let place = Place::new();
    let ran = place.run(&["bench", "no-such-scenario"]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("bench --list"), "{}", ran.stderr);
}
