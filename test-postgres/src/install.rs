//! Where PostgreSQL's programs are.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};

use crate::VARIABLE;

/// Sees to it that PostgreSQL is there, with Debian's `apt-get` where root lacks it.
///
/// # Errors
/// When it is not there and could not be installed.
pub fn ensure_installed() -> Result<()> {
    let Err(missing) = programs() else { return Ok(()) };
    if !is_root() || !Path::new("/usr/bin/apt-get").exists() {
        return Err(missing);
    }
    for args in [&["update"][..], &["install", "--yes", "--no-install-recommends", "postgresql"]] {
        let mut apt = Command::new("apt-get");
        let status = apt.arg("-qq").args(args).env("DEBIAN_FRONTEND", "noninteractive").status()?;
        ensure!(status.success(), "`apt-get {}` ends with {status}; {missing}", args.join(" "));
    }
    programs().map(drop)
}

/// The folder with `initdb` and `postgres`: of those on the search path, those that `pg_config` knows, and those where
/// packages put them, the newest.
pub(crate) fn programs() -> Result<PathBuf> {
    let mut folders: Vec<PathBuf> =
        env::var_os("PATH").map(|path| env::split_paths(&path).collect()).unwrap_or_default();
    folders.extend(configured());
    // Debian; Red Hat; Homebrew. A folder in each is named after a version.
    for (packages, inner) in [
        ("/usr/lib/postgresql", "bin"),
        ("/usr", "bin"),
        ("/opt/homebrew/opt", "bin"),
        ("/usr/local/opt", "bin"),
    ] {
        let entries = fs::read_dir(packages).into_iter().flatten().filter_map(Result::ok);
        folders.extend(entries.map(|entry| entry.path().join(inner)));
    }
    let both = |folder: &PathBuf| folder.join("initdb").is_file() && folder.join("postgres").is_file();
    let newest = folders.into_iter().filter(both).max_by_key(|folder| version(folder));
    newest.with_context(|| {
        format!("PostgreSQL is not installed; install it (`apt-get install postgresql`) or set {VARIABLE} to the URL of a server")
    })
}

pub(crate) fn is_root() -> bool {
    #[cfg(unix)]
    return rustix::process::geteuid().is_root();
    #[cfg(not(unix))]
    false
}

fn configured() -> Option<PathBuf> {
    let output = Command::new("pg_config").arg("--bindir").stderr(Stdio::null()).output().ok()?;
    let folder = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| PathBuf::from(folder.trim()))
}

/// The major version of the server in this folder; 0 if it does not say.
fn version(folder: &Path) -> u32 {
    let output = Command::new(folder.join("postgres")).arg("--version").output();
    output.map(|output| major(&String::from_utf8_lossy(&output.stdout))).unwrap_or_default()
}

/// Of a line such as `postgres (PostgreSQL) 17.2 (Debian 17.2-1)` or `postgres (PostgreSQL) 18beta1`.
fn major(line: &str) -> u32 {
    let number = line.split(' ').nth(2).unwrap_or_default();
    let digits = number.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
    digits.parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newer_version_is_known_by_its_number() {
        assert_eq!(major("postgres (PostgreSQL) 9.6.24"), 9);
        assert_eq!(major("postgres (PostgreSQL) 17.2 (Debian 17.2-1.pgdg120+1)"), 17);
        assert_eq!(major("postgres (PostgreSQL) 18beta1"), 18);
        assert_eq!(major(""), 0);
    }
}
