//! What must not stand in the sources.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Result;

const MOST_LINES: usize = 600;

/// Names that say nothing about what is inside.
const EMPTY_NAMES: [&str; 5] = ["common.rs", "helper.rs", "helpers.rs", "util.rs", "utils.rs"];

/// A text that must not occur, where, and why.
struct Forbidden {
    text: &'static str,
    /// Only below this folder; everywhere if empty.
    within: &'static str,
    /// Except in files whose path ends so.
    except: &'static str,
    why: &'static str,
}

const CORE: &str = "crates/postdate-core/src/";

#[rustfmt::skip]
const FORBIDDEN: &[Forbidden] = &[
    Forbidden { text: "#[ignore", within: "", except: "", why: "a test that does not run proves nothing" },
    Forbidden { text: "todo!(", within: "", except: "", why: "no stubs" },
    Forbidden { text: "unimplemented!(", within: "", except: "", why: "no stubs" },
    Forbidden { text: "SystemTime::now", within: CORE, except: "", why: "the core takes its time from a `Clock`" },
    Forbidden { text: "Timestamp::now", within: CORE, except: "/clock.rs", why: "the core takes its time from a `Clock`" },
    Forbidden { text: "std::time::Instant::now", within: CORE, except: "", why: "a simulation could not pause it" },
    Forbidden { text: "HashMap", within: CORE, except: "", why: "its order differs from run to run" },
    Forbidden { text: "HashSet", within: CORE, except: "", why: "its order differs from run to run" },
    Forbidden { text: "rand::", within: CORE, except: "", why: "a simulation could not be repeated" },
];

pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    for file in rust_files(root)? {
        let name = file.strip_prefix(root)?.to_string_lossy().replace('\\', "/");
        // These lists name what they forbid.
        if !name.starts_with("xtask/") {
            faults.extend(check_file(&name, &fs::read_to_string(&file)?));
        }
    }
    Ok(faults)
}

fn check_file(name: &str, text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let lines = text.lines().count();
    if lines > MOST_LINES {
        faults.push(format!("{name}: {lines} lines; {MOST_LINES} are the most, so split it by ideas"));
    }
    if EMPTY_NAMES.iter().any(|empty| name.ends_with(&format!("/{empty}"))) {
        faults.push(format!("{name}: name the file after what is in it"));
    }
    let code: Vec<&str> = text.lines().map(without_comment).collect();
    for (number, line) in code.iter().enumerate() {
        let fault = |what: &str, why: &str| format!("{name}:{}: {what}: {why}", number + 1);
        for rule in FORBIDDEN {
            let here =
                name.starts_with(rule.within) && (rule.except.is_empty() || !name.ends_with(rule.except));
            if here && line.contains(rule.text) {
                faults.push(fault(rule.text, rule.why));
            }
        }
        if name.starts_with(CORE) && line.contains("select! {") && !is_biased(&code[number + 1..]) {
            faults.push(fault("select!", "begin it with `biased;`, so that a simulation can be repeated"));
        }
    }
    faults
}

fn without_comment(line: &str) -> &str {
    line.split("//").next().unwrap_or_default()
}

fn is_biased(following: &[&str]) -> bool {
    following.iter().map(|line| line.trim()).find(|line| !line.is_empty()) == Some("biased;")
}

fn rust_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            files.extend(rust_files(&path)?);
        } else if name.ends_with(".rs") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wall_clock_in_the_core_is_a_fault() {
        let text = "fn f() {\n    let t = SystemTime::now();\n}\n";
        let faults = check_file("crates/postdate-core/src/poller.rs", text);
        assert_eq!(faults.len(), 1);
        assert!(faults[0].starts_with("crates/postdate-core/src/poller.rs:2: SystemTime::now"), "{faults:?}");
        assert!(check_file("crates/postdate-cli/src/main.rs", text).is_empty());
        let timestamp = "fn now() -> Timestamp { Timestamp::now() }";
        assert!(check_file("crates/postdate-core/src/clock.rs", timestamp).is_empty());
    }

    #[test]
    fn what_a_comment_names_is_no_fault() {
        assert!(
            check_file("crates/postdate-core/src/x.rs", "// no HashMap here\n/// nor todo!()\n").is_empty()
        );
    }

    #[test]
    fn a_select_in_the_core_must_be_biased() {
        let name = "crates/postdate-core/src/x.rs";
        assert!(check_file(name, "tokio::select! {\n\n    biased;\n    a => {}\n}").is_empty());
        assert_eq!(check_file(name, "tokio::select! {\n    a => {}\n}").len(), 1);
    }

    #[test]
    fn a_long_file_and_an_empty_name_are_faults() {
        assert_eq!(check_file("crates/x/src/a.rs", &"\n".repeat(601)).len(), 1);
        assert!(check_file("crates/x/src/a.rs", &"\n".repeat(600)).is_empty());
        assert_eq!(check_file("crates/x/src/util.rs", "").len(), 1);
    }
}
