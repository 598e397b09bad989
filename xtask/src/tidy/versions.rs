//! What is written in several places and must agree.

use std::{fs, path::Path};

use anyhow::{Context, Result};

use super::edges::Package;

/// The README promises that these two do everything.
const FIRST_COMMANDS: [&str; 2] = ["cargo run --release --bin postdate -- run", "cargo xtask test"];

pub(crate) fn check(root: &Path, packages: &[Package]) -> Result<Vec<String>> {
    let read = |name: &str| fs::read_to_string(root.join(name)).with_context(|| format!("{name} is missing"));
    let readme = read("README.md")?;
    let version = packages.iter().find_map(|package| package.rust_version.as_deref()).unwrap_or_default();
    let mut faults = rust_version(version, &readme, &read(".github/workflows/ci.yml")?);
    faults.extend(first_commands(&readme));
    for package in packages {
        let manifest = fs::read_to_string(&package.manifest)?;
        faults.extend(manifest_faults(&package.name, &manifest));
    }
    Ok(faults)
}

fn rust_version(version: &str, readme: &str, workflow: &str) -> Vec<String> {
    let wanted = [
        ("README.md", readme, format!("Rust {version}")),
        (".github/workflows/ci.yml", workflow, format!("RUST_VERSION: \"{version}\"")),
    ];
    let missing = wanted.into_iter().filter(|(_, text, wanted)| !text.contains(wanted.as_str()));
    missing.map(|(file, _, wanted)| format!("{file} must say `{wanted}`, as Cargo.toml does")).collect()
}

fn first_commands(readme: &str) -> Option<String> {
    let commands = readme.lines().filter(|line| line.starts_with("cargo "));
    let first: Vec<_> = commands.take(FIRST_COMMANDS.len()).collect();
    (first != FIRST_COMMANDS).then(|| format!("README.md must begin with the commands {FIRST_COMMANDS:?}"))
}

/// The one package that calls C; it writes the lints out, with that exception.
const WITH_UNSAFE: &str = "crash-tests";

fn manifest_faults(package: &str, manifest: &str) -> Vec<String> {
    let lints = if package == WITH_UNSAFE {
        "undocumented_unsafe_blocks = \"deny\""
    } else {
        "[lints]\nworkspace = true"
    };
    let inherited = ["version.workspace = true", "rust-version.workspace = true", lints];
    let missing = inherited.into_iter().filter(|wanted| !manifest.replace("\r\n", "\n").contains(wanted));
    missing.map(|wanted| format!("the manifest of {package} must say {wanted:?}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_rust_version_in_the_readme_is_a_fault() {
        let workflow = "RUST_VERSION: \"1.95\"";
        assert_eq!(rust_version("1.95", "needs Rust 1.95", workflow), [""; 0]);
        assert_eq!(rust_version("1.95", "needs Rust 1.90", workflow).len(), 1);
        assert_eq!(rust_version("1.96", "needs Rust 1.95", workflow).len(), 2);
    }

    #[test]
    fn the_readme_begins_with_two_commands() {
        let right =
            "# x\n```sh\ncargo run --release --bin postdate -- run\n```\n\ncargo xtask test\ncargo more";
        assert_eq!(first_commands(right), None);
        assert!(first_commands("cargo xtask test").is_some());
    }

    #[test]
    fn a_package_without_the_lints_of_the_workspace_is_a_fault() {
        let manifest = "version.workspace = true\nrust-version.workspace = true\n";
        assert_eq!(manifest_faults("x", manifest).len(), 1);
        assert!(manifest_faults("x", &format!("{manifest}[lints]\r\nworkspace = true\r\n")).is_empty());
    }
}
