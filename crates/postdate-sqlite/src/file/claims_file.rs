//! Showing other processes which messages are held.

use std::{
    collections::HashSet,
    fs,
    io::{self, Seek, Write},
    path::Path,
};

use postdate_core::StoreErrorKind;

use super::beside::Beside;
use crate::error::{Fault, Result};

/// The file has room for the numbers of 8,191 messages from the start: a disk that fills up later does not keep
/// due messages from leaving.
const RESERVED: usize = 64 << 10;

/// Stands in the place of the count while the numbers are being written.
const UNFINISHED: u64 = u64::MAX;

/// A count and so many sequence numbers, eight bytes each; what follows is left over from earlier.
///
/// It is written and read within write transactions only, and needs no sync: those who read it see the same page
/// cache.
#[derive(Debug)]
pub(super) struct ClaimsFile(Beside);

impl ClaimsFile {
    /// For an endpoint of a database.
    pub(super) fn new(database: &Path, endpoint: i64) -> Self {
        Self(Beside::new(database, "claims", endpoint))
    }

    /// Empties the file, or creates it.
    pub(super) fn clear(&self) -> Result<()> {
        self.0.open()?.write_all(&[0; RESERVED]).map_err(|error| self.0.fault(error))
    }

    pub(super) fn write(&self, seqs: impl ExactSizeIterator<Item = i64>) -> Result<()> {
        write_numbers(&mut self.0.open()?, seqs).map_err(|error| self.0.fault(error))
    }

    /// # Errors
    /// Also where writing the file failed half-way: a shorter list would be a lie.
    pub(super) fn read(&self) -> Result<HashSet<i64>> {
        let content = fs::read(self.0.path()).map_err(|error| self.0.fault(error))?;
        read_numbers(&content).ok_or_else(|| {
            let detail = format!(
                "{} is half-written, so it is unknown what is in flight; free some space and try again",
                self.0.path().display()
            );
            Fault::new(StoreErrorKind::Unavailable, detail)
        })
    }
}

fn write_numbers(file: &mut (impl Write + Seek), seqs: impl ExactSizeIterator<Item = i64>) -> io::Result<()> {
    let count = seqs.len() as u64;
    let numbers: Vec<u8> = seqs.flat_map(i64::to_le_bytes).collect();
    file.write_all(&UNFINISHED.to_le_bytes())?;
    file.write_all(&numbers)?;
    file.rewind()?;
    file.write_all(&count.to_le_bytes())
}

fn read_numbers(content: &[u8]) -> Option<HashSet<i64>> {
    let (words, _) = content.as_chunks();
    let (count, numbers) = words.split_first()?;
    let count = usize::try_from(u64::from_le_bytes(*count)).ok()?;
    Some(numbers.get(..count)?.iter().copied().map(i64::from_le_bytes).collect())
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    /// A file on a disk that takes so many bytes more.
    struct Filling {
        file: Cursor<Vec<u8>>,
        left: usize,
    }

    impl Write for Filling {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let taken = bytes.len().min(self.left);
            self.left -= taken;
            self.file.write(&bytes[..taken])
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Seek for Filling {
        fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
            self.file.seek(to)
        }
    }

    #[test]
    fn wherever_writing_stops_nobody_reads_a_list_that_never_was() {
        let (old, new) = (HashSet::from([1, 2, 3]), HashSet::from([4, 5]));
        for left in (0..=32).step_by(8) {
            let mut filling = Filling { file: Cursor::new(vec![0; 64]), left: usize::MAX };
            write_numbers(&mut filling, [1, 2, 3].into_iter()).unwrap();
            filling.rewind().unwrap();
            filling.left = left;
            let written = write_numbers(&mut filling, [4, 5].into_iter());
            let read = read_numbers(filling.file.get_ref());
            let expected = match (left, written) {
                (0, Err(_)) => Some(&old),
                (32, Ok(())) => Some(&new),
                (_, Err(_)) => None,
                (_, Ok(())) => panic!("written to a full disk"),
            };
            assert_eq!(read.as_ref(), expected, "after {left} bytes");
        }
    }

    #[test]
    fn less_than_was_counted_is_no_list() {
        for content in [&[][..], &[0; 7], &[1, 0, 0, 0, 0, 0, 0, 0], &[0xff; 800]] {
            assert_eq!(read_numbers(content), None, "{content:?}");
        }
        assert_eq!(read_numbers(&[0; 8]), Some(HashSet::new()));
    }
}
