//! The published suite, on a directory of its own for each check.

use std::{process::ExitCode, sync::Arc};

use directory_store::Directory;
use postdate_core::Backend;

fn main() -> ExitCode {
    postdate_conformance::stores("directory", |place| {
        let path = place.dir().join("messages");
        let directory = place.shared(|| Directory::open(path).expect("the place is this check's own"));
        async move { Ok(Arc::new(directory) as Arc<dyn Backend>) }
    })
}
