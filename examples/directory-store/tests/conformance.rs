//! The published suite, on a directory of its own for each check.

use std::{
    error::Error,
    fs, io,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use directory_store::Directory;
use postdate_conformance::{Meddled, Meddling, Suite};
use postdate_core::Backend;

fn main() -> ExitCode {
    Suite::new("directory")
        .stores(|place| {
            let path = place.dir().join("messages");
            let directory = place.shared(|| Directory::open(path).expect("the place is this check's own"));
            async move { Ok(Arc::new(directory) as Arc<dyn Backend>) }
        })
        .meddling(|place, meddling| {
            let path = place.dir().join("messages");
            async move { meddle(&path, &meddling) }
        })
        .run()
}

/// Does by hand what no call of the store does.
fn meddle(path: &Path, meddling: &Meddling) -> Result<Meddled, Box<dyn Error + Send + Sync>> {
    match meddling {
        Meddling::UnreadableRow { endpoint, id } => {
            let file = file_of(path, endpoint.as_str(), id.as_str())?;
            fs::write(file, format!("{id}\nbilling\n0 99\n"))?;
        }
        Meddling::NewerSchema => fs::write(path.join("version"), "1000\n")?,
        Meddling::CurrentSchema => fs::write(path.join("version"), "1\n")?,
        Meddling::OlderSchema => return Ok(Meddled::Impossible("there is one version so far")),
        Meddling::NoRightToMakeTables => return Ok(Meddled::Impossible("a directory has no tables")),
        Meddling::SessionTimeZone(_) => {
            return Ok(Meddled::Impossible("times are numbers, without sessions"));
        }
        _ => return Ok(Meddled::Impossible("not known here")),
    }
    Ok(Meddled::Done)
}

/// The file of a message, found as a person would find it.
fn file_of(path: &Path, endpoint: &str, id: &str) -> io::Result<PathBuf> {
    let beginning = format!("{id}\n");
    for folder in inside(path)?.into_iter().filter(|folder| folder.is_dir()) {
        if fs::read(folder.join("name"))? != endpoint.as_bytes() {
            continue;
        }
        for batch in inside(&folder.join("stored"))? {
            for file in inside(&batch)? {
                if fs::read(&file)?.starts_with(beginning.as_bytes()) {
                    return Ok(file);
                }
            }
        }
    }
    Err(io::Error::new(io::ErrorKind::NotFound, format!("no file has the message {id}")))
}

fn inside(folder: &Path) -> io::Result<Vec<PathBuf>> {
    fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect()
}
