//! The directory as a backend: who may use it, and the endpoints in it.

use std::{
    collections::BTreeMap,
    fs::{self, File, TryLockError},
    io::{self, Write as _},
    path::{Path, PathBuf, absolute},
    sync::{Arc, Mutex, PoisonError, Weak},
};

use async_trait::async_trait;
use postdate_core::{
    Backend, Capabilities, ClaimKind, DelayedMessageStore, EndpointName, Operation, StoreError,
    StoreErrorKind, TransactionMode,
};

use crate::{
    content::MAX_MESSAGE_BYTES,
    endpoint::{Endpoint, run},
    error::{Fault, Result},
    layout::{Folder, name, sync},
    messages::Messages,
    store::DirectoryStore,
};

/// The layout that this version reads and writes.
const VERSION: u32 = 1;

const MODES: &[TransactionMode] = &[TransactionMode::None, TransactionMode::ReceiveOnly];

/// Delayed messages in a directory.
///
/// Clones share it. It is free for another process when the last clone, store and claim are gone.
#[derive(Clone, Debug)]
pub struct Directory {
    root: Arc<Root>,
}

#[derive(Debug)]
struct Root {
    path: PathBuf,
    right: Arc<Right>,
    /// The endpoints that are open. Also what keeps two from being set up at once.
    open: Mutex<BTreeMap<EndpointName, Weak<Endpoint>>>,
}

/// The right to use a directory. Every endpoint that is open has a share in it: a store or a claim that outlives
/// its `Directory` must not find another process at its files.
#[derive(Debug)]
pub(crate) struct Right {
    /// What the directory is called in errors.
    pub(crate) store: String,
    _lock: File,
}

impl Directory {
    /// Takes a directory, or creates it. The one above it must exist. Waits for the disk.
    ///
    /// # Errors
    /// [`Unavailable`](StoreErrorKind::Unavailable) if another process, or another `Directory` in this one, uses it.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        let store = format!("directory:{}", path.as_ref().display());
        let root = Root::open(path.as_ref(), &store);
        let root = root.map_err(|fault| fault.into_error(Operation::Connect, &store))?;
        Ok(Self { root: Arc::new(root) })
    }

    async fn run<T: Send + 'static>(
        &self,
        operation: Operation,
        step: impl FnOnce(&Root) -> Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let root = Arc::clone(&self.root);
        run(&self.root.right.store, operation, move || step(&root)).await
    }
}

#[async_trait]
impl Backend for Directory {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new(MODES, ClaimKind::Process)
            .resolution(std::time::Duration::from_nanos(1))
            .max_message_bytes(MAX_MESSAGE_BYTES)
    }

    async fn set_up(&self, endpoint: &EndpointName) -> Result<(), StoreError> {
        let endpoint = endpoint.clone();
        self.run(Operation::SetUp, move |root| root.set_up(&endpoint)).await
    }

    async fn open(
        &self,
        endpoint: &EndpointName,
        mode: TransactionMode,
    ) -> Result<Arc<dyn DelayedMessageStore>, StoreError> {
        let endpoint = endpoint.clone();
        let endpoint = self.run(Operation::Open, move |root| root.endpoint(&endpoint, mode)).await?;
        Ok(Arc::new(DirectoryStore::new(endpoint)))
    }
}

impl Root {
    fn open(path: &Path, store: &str) -> Result<Self> {
        let path = absolute(path)?;
        match fs::create_dir(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error.into()),
            _ => path.parent().map_or(Ok(()), sync)?,
        }
        let lock = File::options().create(true).truncate(false).write(true).open(path.join("lock"))?;
        match lock.try_lock() {
            Ok(()) => {
                let right = Arc::new(Right { store: store.to_owned(), _lock: lock });
                Ok(Self { path, right, open: Mutex::default() })
            }
            Err(TryLockError::Error(error)) => Err(error.into()),
            Err(TryLockError::WouldBlock) => {
                let detail = "it is in use; one process at a time can use a directory, so stop the other one";
                Err(Fault::new(StoreErrorKind::Unavailable, detail))
            }
        }
    }

    fn set_up(&self, endpoint: &EndpointName) -> Result<()> {
        let _alone = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.has_our_version()? {
            self.put("version", format!("{VERSION}\n").as_bytes())?;
        }
        let (found, last) = self.find(endpoint)?;
        if found.is_none() {
            // An endpoint is made aside, too, and there as a whole when it gets its number.
            let (aside, place) = (self.path.join("new"), self.path.join((last + 1).to_string()));
            Folder::new(&aside).create()?;
            write(&aside.join("name"), endpoint.as_str().as_bytes())?;
            sync(&aside)?;
            fs::rename(&aside, &place)?;
            sync(&self.path)?;
        }
        Ok(())
    }

    fn endpoint(&self, name: &EndpointName, mode: TransactionMode) -> Result<Arc<Endpoint>> {
        if !MODES.contains(&mode) {
            let detail = format!("there is no mode {mode} here; use {}", TransactionMode::ReceiveOnly);
            return Err(Fault::new(StoreErrorKind::Unsupported, detail));
        }
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(endpoint) = open.get(name).and_then(Weak::upgrade) {
            return Ok(endpoint);
        }
        let found = if self.has_our_version()? { self.find(name)?.0 } else { None };
        let folder = found.ok_or_else(|| {
            let detail = format!("endpoint {name:?} is not set up here; call set_up first");
            Fault::new(StoreErrorKind::NotSetUp, detail)
        })?;
        let endpoint = Arc::new(Endpoint::new(Arc::clone(&self.right), Messages::load(folder)?));
        open.insert(name.clone(), Arc::downgrade(&endpoint));
        Ok(endpoint)
    }

    /// The folder of an endpoint, if it is set up, and the greatest number of any.
    fn find(&self, endpoint: &EndpointName) -> Result<(Option<Folder>, u64)> {
        let (mut found, mut last) = (None, 0);
        for folder in fs::read_dir(&self.path)? {
            let folder = folder?.path();
            let Some(number) = name(&folder).and_then(|name| name.parse().ok()) else { continue };
            last = last.max(number);
            if fs::read(folder.join("name"))? == endpoint.as_str().as_bytes() {
                found = Some(Folder::new(&folder));
            }
        }
        Ok((found, last))
    }

    /// Whether the directory is set up.
    ///
    /// # Errors
    /// When that was done by somebody else.
    fn has_our_version(&self) -> Result<bool> {
        let text = match fs::read_to_string(self.path.join("version")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            text => text?,
        };
        match text.trim_end().parse::<u32>() {
            Ok(VERSION) => Ok(true),
            Ok(newer) if newer > VERSION => {
                let detail =
                    format!("its layout is version {newer}, this program knows {VERSION}; update it");
                Err(Fault::new(StoreErrorKind::TooNew, detail))
            }
            _ => {
                Err(Fault::new(StoreErrorKind::Corrupt, "its version is not ours; choose another directory"))
            }
        }
    }

    /// Puts a file in its place as a whole.
    fn put(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let aside = self.path.join(format!("{name}.new"));
        write(&aside, content)?;
        fs::rename(&aside, self.path.join(name))?;
        sync(&self.path)
    }
}

fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(content)?;
    file.sync_all()
}
