//! The guide *Writing a store* shows this code and no other, and names checks that are there.

use std::{collections::BTreeSet, fs, path::Path, sync::Arc};

use postdate_conformance::Suite;
use postdate_core::{Backend, Memory, Queues};

#[test]
fn every_block_of_the_guide_stands_in_the_sources() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    // What stands in a doc comment is code, too.
    let code_of = |text: &str| {
        let lines = text.lines().map(|line| line.strip_prefix("//! ").unwrap_or(line));
        without_spaces(&lines.collect::<String>())
    };
    let sources: String = ["src", "tests"]
        .into_iter()
        .flat_map(|folder| fs::read_dir(root.join(folder)).unwrap())
        .map(|file| file.unwrap().path())
        .chain([root.join("Cargo.toml"), root.join("../../crates/postdate-core/src/store.rs")])
        .map(|path| code_of(&fs::read_to_string(path).unwrap()))
        .collect();
    let guide = guide();
    let blocks: Vec<_> = guide.split("\n```").skip(1).step_by(2).collect();
    let code =
        blocks.iter().filter_map(|block| block.split_once('\n')).filter(|(language, _)| *language != "sh");
    let mut shown = 0;
    for (_, block) in code {
        assert!(sources.contains(&without_spaces(block)), "not in the sources:\n{block}");
        shown += 1;
    }
    assert!(shown >= 10, "{shown} blocks were found");
}

#[test]
fn every_check_that_the_guide_names_is_in_the_suite() {
    let memory = || Arc::new(Memory::new());
    let suite = Suite::new("any")
        .stores(move |_| std::future::ready(Ok(memory() as Arc<dyn Backend>)))
        .queues(move |_| std::future::ready(Ok(Arc::new(memory().queues()) as Arc<dyn Queues>)));
    let checks: BTreeSet<_> = suite.checks().map(|check| check.name).collect();
    let guide = guide();
    let (_, section) = guide.split_once("## Mistakes that others shipped").unwrap();
    let named: Vec<_> = section
        .lines()
        .filter(|line| line.starts_with('|'))
        .flat_map(|line| line.split('`').skip(1).step_by(2))
        .collect();
    let unknown: Vec<_> = named.iter().filter(|name| !checks.contains(**name)).collect();
    assert!(
        named.len() >= 20 && unknown.is_empty(),
        "{} are named, not in the suite: {unknown:?}",
        named.len()
    );
}

fn guide() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/writing-a-store.md");
    fs::read_to_string(path).expect("the guide is in the repository").replace("\r\n", "\n")
}

fn without_spaces(text: &str) -> String {
    text.split_whitespace().collect()
}
