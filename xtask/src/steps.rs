//! Steps that run one after the other and are summed up at the end.

use std::{path::Path, time::Instant};

use anyhow::{Result, bail};

/// One of the things that must hold.
pub(crate) struct Step {
    pub(crate) name: &'static str,
    pub(crate) run: fn(&Path) -> Result<Outcome>,
}

/// How a step that did not fail ended.
pub(crate) enum Outcome {
    Passed,
    /// Passed, with something to add to the summary.
    Note(String),
    /// Did not run, and why.
    Skipped(String),
}

/// Runs all steps, also after one failed: one run shows all there is to mend.
pub(crate) fn run(root: &Path, steps: &[Step]) -> Result<()> {
    let mut summary = Vec::new();
    let mut failed = 0;
    for (number, step) in steps.iter().enumerate() {
        println!("== {} ({} of {})", step.name, number + 1, steps.len());
        let start = Instant::now();
        let (word, note) = match (step.run)(root) {
            Ok(Outcome::Passed) => ("passed", String::new()),
            Ok(Outcome::Note(note)) => ("passed", note),
            Ok(Outcome::Skipped(why)) => ("skipped", why),
            Err(error) => {
                failed += 1;
                eprintln!("error: {error:#}");
                ("FAILED", format!("{error:#}").lines().next().unwrap_or_default().to_owned())
            }
        };
        summary.push(format!("{word:<8} {:<7} {:>6.1} s  {note}", step.name, start.elapsed().as_secs_f64()));
    }
    println!();
    for line in summary {
        println!("{}", line.trim_end());
    }
    if failed > 0 {
        bail!("{failed} of {} steps failed", steps.len());
    }
    Ok(())
}
