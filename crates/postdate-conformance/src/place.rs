//! Where a check happens.

use std::{
    any::{Any, TypeId},
    collections::BTreeMap,
    fmt, io,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use tempfile::TempDir;
use uuid::Uuid;

/// A place of a check's own: an empty folder, and a name that nobody else uses.
pub struct Place {
    dir: TempDir,
    name: String,
    shared: Mutex<BTreeMap<TypeId, Box<dyn Any + Send>>>,
}

impl Place {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            dir: TempDir::with_prefix("postdate-")?,
            name: format!("conf{}", Uuid::now_v7().simple()),
            shared: Mutex::default(),
        })
    }

    /// A folder that is empty at first and removed after the check.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// A unique name of 36 lower-case letters and digits, the first of them a letter: fit for a schema, a table
    /// or a container.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What all handles on this place share, made when it is first asked for: the content of a store that lives
    /// in the process, or a pool of connections.
    pub fn shared<T: Clone + Send + 'static>(&self, make: impl FnOnce() -> T) -> T {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        match shared.get(&TypeId::of::<T>()).and_then(|value| value.downcast_ref::<T>()) {
            Some(value) => value.clone(),
            None => {
                let value = make();
                shared.insert(TypeId::of::<T>(), Box::new(value.clone()));
                value
            }
        }
    }
}

/// All places that a check has used.
#[derive(Clone, Default)]
pub(crate) struct Places(Arc<Mutex<Vec<Arc<Place>>>>);

impl Places {
    pub(crate) fn another(&self) -> io::Result<Arc<Place>> {
        let place = Arc::new(Place::new()?);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&place));
        Ok(place)
    }

    pub(crate) fn all(&self) -> Vec<Arc<Place>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place").field("dir", &self.dir()).field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_fit_for_a_table_and_for_a_container_and_is_used_once() {
        let (one, other) = (Place::new().unwrap(), Place::new().unwrap());
        assert_ne!(one.name(), other.name());
        assert_eq!(one.name().len(), 36);
        assert!(one.name().chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit()), "{}", one.name());
    }

    #[test]
    fn what_is_shared_is_made_once() {
        let place = Place::new().unwrap();
        assert_eq!([place.shared(|| 1_u8), place.shared(|| 2_u8)], [1, 1]);
        assert_eq!(place.shared(|| "of another type"), "of another type");
    }
}
