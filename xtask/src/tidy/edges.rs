//! Which crate may know which.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::cargo::cargo;

/// A package of the workspace.
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) manifest: PathBuf,
    pub(crate) rust_version: Option<String>,
    dependencies: Vec<Dependency>,
}

struct Dependency {
    name: String,
    kind: Kind,
    optional: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Normal,
    Dev,
}

pub(crate) fn packages(root: &Path) -> Result<Vec<Package>> {
    let output = cargo(root).args(["metadata", "--no-deps", "--format-version", "1"]).output()?;
    let metadata: Value = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr)))?;
    array(&metadata["packages"]).map(package).collect()
}

pub(crate) fn check(packages: &[Package]) -> Vec<String> {
    let ours = |name: &str| packages.iter().any(|package| package.name == name);
    let mut faults = Vec::new();
    for package in packages {
        for dependency in package.dependencies.iter().filter(|dependency| ours(&dependency.name)) {
            if !may_depend(&package.name, &dependency.name, dependency.kind) {
                faults.push(format!("{} must not depend on {}", package.name, dependency.name));
            } else if package.name == "postdate" && is_backend(&dependency.name) && !dependency.optional {
                faults.push(format!("postdate must bring {} by a feature only", dependency.name));
            }
        }
    }
    faults
}

fn may_depend(from: &str, on: &str, kind: Kind) -> bool {
    if on == "test-postgres" {
        // It starts servers, which is nothing for what applications link.
        return kind == Kind::Dev || matches!(from, "xtask" | "crash-tests" | "integration-tests");
    }
    match from {
        "integration-tests" | "crash-tests" => on != "xtask",
        // What happened is told in the core's own terms, and nobody but tests judges it.
        "postdate-history" => on == "postdate-core",
        "postdate-core" => on == "postdate-history" && kind == Kind::Dev,
        "postdate" => on == "postdate-core" || is_backend(on),
        "postdate-cli" => matches!(on, "postdate" | "postdate-conformance" | "postdate-bench"),
        "postdate-conformance" => on == "postdate-core",
        "postdate-bench" => on == "postdate-core" || is_backend(on),
        backend if is_backend(backend) => {
            on == "postdate-core"
                || (matches!(on, "postdate-conformance" | "postdate-history") && kind == Kind::Dev)
        }
        _ => false,
    }
}

/// A backend is whatever has no other part: a new one falls under the rule without being named here.
fn is_backend(name: &str) -> bool {
    name.strip_prefix("postdate-")
        .is_some_and(|part| !matches!(part, "core" | "cli" | "conformance" | "bench" | "history"))
}

fn package(value: &Value) -> Result<Package> {
    Ok(Package {
        name: text(&value["name"])?,
        manifest: text(&value["manifest_path"])?.into(),
        rust_version: value["rust_version"].as_str().map(str::to_owned),
        dependencies: array(&value["dependencies"]).map(dependency).collect::<Result<_>>()?,
    })
}

fn dependency(value: &Value) -> Result<Dependency> {
    Ok(Dependency {
        name: text(&value["name"])?,
        kind: if value["kind"] == "dev" { Kind::Dev } else { Kind::Normal },
        optional: value["optional"] == true,
    })
}

fn array(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> Result<String> {
    value.as_str().map(str::to_owned).context("cargo metadata has another shape than expected")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_core_knows_nobody_and_no_backend_knows_another() {
        for on in ["postdate", "postdate-sqlite", "postdate-conformance", "postdate-cli"] {
            assert!(!may_depend("postdate-core", on, Kind::Normal), "{on}");
            assert!(!may_depend("postdate-core", on, Kind::Dev), "{on}");
        }
        assert!(may_depend("postdate-sqlite", "postdate-core", Kind::Normal));
        assert!(!may_depend("postdate-sqlite", "postdate-postgres", Kind::Normal));
        assert!(!may_depend("postdate-sqlite", "postdate", Kind::Dev));
    }

    #[test]
    fn only_the_binary_links_the_conformance_suite() {
        assert!(may_depend("postdate-sqlite", "postdate-conformance", Kind::Dev));
        assert!(!may_depend("postdate-sqlite", "postdate-conformance", Kind::Normal));
        assert!(!may_depend("postdate", "postdate-conformance", Kind::Normal));
        assert!(may_depend("postdate-cli", "postdate-conformance", Kind::Normal));
    }

    #[test]
    fn servers_are_started_by_tests_and_tasks_only() {
        for from in ["postdate-postgres", "postdate-cli", "postdate-bench"] {
            assert!(may_depend(from, "test-postgres", Kind::Dev), "{from}");
            assert!(!may_depend(from, "test-postgres", Kind::Normal), "{from}");
        }
        assert!(may_depend("xtask", "test-postgres", Kind::Normal));
        assert!(!may_depend("test-postgres", "postdate-core", Kind::Dev));
    }

    #[test]
    fn a_backend_that_the_facade_always_brings_is_a_fault() {
        let package = |name: &str, dependencies| Package {
            name: name.into(),
            manifest: PathBuf::new(),
            rust_version: None,
            dependencies,
        };
        let on_sqlite =
            |optional| vec![Dependency { name: "postdate-sqlite".into(), kind: Kind::Normal, optional }];
        let check_with = |optional| {
            check(&[package("postdate", on_sqlite(optional)), package("postdate-sqlite", Vec::new())])
        };
        assert_eq!(check_with(true), [""; 0]);
        assert_eq!(check_with(false), ["postdate must bring postdate-sqlite by a feature only"]);
    }
}
