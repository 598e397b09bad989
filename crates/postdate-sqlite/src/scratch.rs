//! A folder beside a file, for trials.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::OnceLock,
    time::Duration,
};

use async_trait::async_trait;
use postdate_core::{Connected, Operation, ScratchPlace, StoreError, StoreErrorKind, StoreUrl};
use tokio::{task::spawn_blocking, time::sleep};

use crate::{
    driver::{self, options},
    error::{Fault, Result},
    file::locate,
};

/// `x.db-scratch-NAME` beside `x.db`: on the same disk, and whose it is can be seen should it ever be left behind.
#[derive(Debug)]
pub(crate) struct ScratchFolder {
    url: StoreUrl,
    name: String,
    /// Where it is, once it was made.
    folder: OnceLock<PathBuf>,
}

/// Somebody may be writing files into the folder still, or holding them open where that matters.
const ATTEMPTS: u32 = 40;
const PAUSE: Duration = Duration::from_millis(50);

impl ScratchFolder {
    pub(crate) fn new(url: &StoreUrl, name: &str) -> Self {
        Self { url: url.clone(), name: name.to_owned(), folder: OnceLock::new() }
    }

    fn error(&self, fault: Fault, operation: Operation) -> StoreError {
        fault.into_error(operation, &self.url.to_string())
    }
}

#[async_trait]
impl ScratchPlace for ScratchFolder {
    async fn connect(&self) -> Result<Connected, StoreError> {
        let options = options(&self.url)?;
        let file = Path::new(driver::path(&self.url)?);
        // Nothing awaits in between: a folder that was made is known.
        let folder = match self.folder.get() {
            Some(folder) => Ok(folder.clone()),
            None => beside(file, &self.name),
        };
        let made = folder.and_then(|folder| make(&folder, file).map(|()| folder));
        let made = made.map_err(|fault| self.error(fault, Operation::Connect))?;
        let folder = self.folder.get_or_init(|| made);
        driver::connect(folder.join("postdate.db"), options).await
    }

    async fn remove(&self) -> Result<(), StoreError> {
        let Some(folder) = self.folder.get() else { return Ok(()) };
        let mut attempts = 1;
        while let Err(error) = remove(folder.clone()).await {
            if attempts == ATTEMPTS {
                return Err(self.error(Fault::beside(folder, error), Operation::Administer));
            }
            attempts += 1;
            sleep(PAUSE).await;
        }
        Ok(())
    }
}

fn beside(path: &Path, name: &str) -> Result<PathBuf> {
    let mut folder = locate(path)?.into_os_string();
    folder.push(format!("-scratch-{name}"));
    Ok(folder.into())
}

fn make(folder: &Path, file: &Path) -> Result<()> {
    match fs::create_dir(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(not_made(folder, file, error)),
        _ => Ok(()),
    }
}

fn not_made(folder: &Path, file: &Path, error: io::Error) -> Fault {
    let why = error.kind();
    if !matches!(why, io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem) {
        return Fault::beside(folder, error);
    }
    let name = file.file_name().map_or(file, Path::new).display();
    let directory = folder.parent().unwrap_or(folder).display();
    let detail = format!(
        "cannot make a scratch folder beside {name}: {why}; give this user write access to the directory {directory}"
    );
    Fault::new(StoreErrorKind::Configuration, detail)
}

async fn remove(folder: PathBuf) -> io::Result<()> {
    let removed = spawn_blocking(move || fs::remove_dir_all(folder)).await.map_err(io::Error::other)?;
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DRIVER;

    fn url(path: &Path) -> StoreUrl {
        StoreUrl::parse(&format!("sqlite:{}", path.display())).unwrap()
    }

    fn content(folder: &Path) -> Vec<PathBuf> {
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
    }

    #[tokio::test]
    async fn a_scratch_place_is_a_folder_beside_the_file_and_then_gone() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("x.db");
        let scratch = (DRIVER.scratch)(&url(&file), "trial1");
        assert!(content(directory.path()).is_empty(), "nothing is made before it is connected to");

        let (one, other) = (scratch.connect().await.unwrap(), scratch.connect().await.unwrap());
        let queue = postdate_core::Address::new("billing").unwrap();
        assert!(one.queues.unwrap().create(&queue).await.unwrap());
        assert!(!other.queues.unwrap().create(&queue).await.unwrap(), "both are handles on one place");
        let made = content(directory.path());
        assert_eq!(made.len(), 1, "{made:?}");
        assert!(made[0].ends_with("x.db-scratch-trial1"), "{made:?}");

        for _ in 0..2 {
            scratch.remove().await.unwrap();
            assert!(content(directory.path()).is_empty());
        }
    }

    #[tokio::test]
    async fn a_place_that_cannot_be_is_refused_as_the_store_would_be() {
        let directory = tempfile::tempdir().unwrap();
        for (url, advice) in [
            (url(&directory.path().join("missing/x.db")), "create it"),
            (url(directory.path()), "write the name of a file in it"),
            (StoreUrl::parse("sqlite:x.db?mode=ro").unwrap(), "the only option is durability"),
            (url(&directory.path().join("x".repeat(250))), "choose a shorter or simpler name"),
        ] {
            let scratch = (DRIVER.scratch)(&url, "trial1");
            let error = scratch.connect().await.unwrap_err();
            assert!(error.to_string().contains(advice), "{error}");
            assert_eq!(error.kind(), StoreErrorKind::Configuration, "{error}");
            scratch.remove().await.unwrap();
        }
        assert!(content(directory.path()).is_empty());
    }

    #[test]
    fn a_directory_that_may_not_be_written_to_is_named() {
        let denied = io::Error::from(io::ErrorKind::PermissionDenied);
        let fault = not_made(Path::new("/a/nox/x.db-scratch-1"), Path::new("nox/x.db"), denied);
        assert_eq!(fault.kind(), StoreErrorKind::Configuration);
        assert_eq!(
            fault.into_error(Operation::Connect, "x").to_string(),
            "x: connect: cannot make a scratch folder beside x.db: permission denied; \
             give this user write access to the directory /a/nox"
        );
    }
}
