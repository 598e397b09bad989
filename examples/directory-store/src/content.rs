//! What is in the file of a message, which never changes: three lines, then headers and body byte for byte.
//!
//! ```text
//! order-7
//! billing
//! 17 512 1766649500000000000
//! {"tenant":"acme"}...
//! ```
//!
//! The third line has the sizes of headers and body and, where an absolute due time was asked for, that: it tells
//! a repeated call from a conflict, also after a rescheduling.
//!
//! Neither an id nor an address can contain the end of a line: they are checked for control characters.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read as _, Write as _},
    path::Path,
};

use bytes::Bytes;
use jiff::Timestamp;
use postdate_core::{Address, EncodedHeaders, MessageId, OutgoingMessage};

/// The greatest size of a message: headers and body together, in bytes.
pub(crate) const MAX_MESSAGE_BYTES: usize = 4 << 20;

/// An id has at most 250 characters of at most four bytes.
const LONGEST_LINE: u64 = 1_001;

/// What goes into a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Content<'a> {
    pub(crate) message: &'a OutgoingMessage,
    /// The due time that was asked for, where it is absolute.
    pub(crate) asked: Option<Timestamp>,
}

/// What a file says before headers and body.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    pub(crate) id: MessageId,
    pub(crate) destination: Address,
    pub(crate) asked: Option<Timestamp>,
    header_bytes: usize,
    pub(crate) body_bytes: usize,
}

impl Head {
    pub(crate) fn of(Content { message, asked }: Content<'_>) -> Self {
        Self {
            id: message.id.clone(),
            destination: message.destination.clone(),
            asked,
            header_bytes: message.headers.len(),
            body_bytes: message.body.len(),
        }
    }
}

/// Writes a message to a new file and waits for the disk.
pub(crate) fn write(path: &Path, Content { message, asked }: Content<'_>) -> io::Result<()> {
    let OutgoingMessage { id, destination, headers, body } = message;
    let asked = asked.map_or_else(String::new, |at| format!(" {}", at.as_nanosecond()));
    let mut file = File::create_new(path)?;
    file.write_all(format!("{id}\n{destination}\n{} {}{asked}\n", headers.len(), body.len()).as_bytes())?;
    file.write_all(headers.as_bytes())?;
    file.write_all(body)?;
    file.sync_all()
}

/// Reads the head of a file.
///
/// # Errors
/// [`is_damage`] tells whether it is the file's own fault.
pub(crate) fn head(path: &Path) -> io::Result<Head> {
    open(path).map(|(head, _)| head)
}

/// Reads a message.
///
/// # Errors
/// As [`head`].
pub(crate) fn read(path: &Path) -> io::Result<OutgoingMessage> {
    let (head, mut file) = open(path)?;
    let mut headers = vec![0; head.header_bytes];
    let mut body = vec![0; head.body_bytes];
    file.read_exact(&mut headers)?;
    file.read_exact(&mut body)?;
    Ok(OutgoingMessage {
        id: head.id,
        destination: head.destination,
        headers: EncodedHeaders::from_bytes(Bytes::from(headers)),
        body: body.into(),
    })
}

/// Whether a file cannot be read because of what is in it. Other errors are the disk's: they will pass, or nothing
/// can be read at all.
pub(crate) fn is_damage(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidData, IsADirectory, NotFound, UnexpectedEof};

    matches!(error.kind(), InvalidData | UnexpectedEof | NotFound | IsADirectory)
}

pub(crate) fn damage(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

fn open(path: &Path) -> io::Result<(Head, BufReader<File>)> {
    let file = File::open(path)?;
    let length = file.metadata()?.len();
    let mut file = BufReader::new(file);
    let (id, destination, sizes) = (line(&mut file)?, line(&mut file)?, line(&mut file)?);
    let (header_bytes, body_bytes, asked) = numbers(&sizes)
        .filter(|(headers, body, _)| headers.saturating_add(*body) <= MAX_MESSAGE_BYTES)
        .ok_or_else(|| damage("its third line is not that of a message"))?;
    // Memory is set aside for what the file has, not for what it says that it has.
    let lines = id.len() + destination.len() + sizes.len() + 3;
    if length != (lines + header_bytes + body_bytes) as u64 {
        return Err(damage(format!("it has {length} bytes, its third line says otherwise")));
    }
    let head = Head {
        id: MessageId::new(id).map_err(|error| damage(error.to_string()))?,
        destination: Address::new(destination).map_err(|error| damage(error.to_string()))?,
        asked,
        header_bytes,
        body_bytes,
    };
    Ok((head, file))
}

/// The numbers of the third line.
fn numbers(line: &str) -> Option<(usize, usize, Option<Timestamp>)> {
    let mut parts = line.split(' ');
    let (headers, body) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let asked = match parts.next() {
        Some(asked) => Some(Timestamp::from_nanosecond(asked.parse().ok()?).ok()?),
        None => None,
    };
    parts.next().is_none().then_some((headers, body, asked))
}

fn line(file: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    file.take(LONGEST_LINE).read_line(&mut line)?;
    if line.pop() != Some('\n') {
        return Err(damage("it does not begin with three lines"));
    }
    Ok(line)
}

#[cfg(test)]
mod tests {
    use postdate_core::{Due, Message};

    use super::*;

    #[test]
    fn a_message_comes_back_byte_for_byte_and_no_part_of_its_file_does() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("0");
        let address = Address::new("billing").unwrap();
        let sent = Message::new(&b"\0\n\xff"[..]).header("a", "b").to(address, Due::NOW).message;
        let content = Content { message: &sent, asked: Some(Timestamp::MIN) };
        write(&path, content).unwrap();
        assert_eq!(head(&path).unwrap().asked, content.asked);
        assert_eq!(read(&path).unwrap(), sent);

        let whole = std::fs::read(&path).unwrap();
        for length in 0..whole.len() {
            std::fs::write(&path, &whole[..length]).unwrap();
            assert!(is_damage(&read(&path).unwrap_err()), "{length} bytes");
        }
        for text in [
            "a\nb\n99999999999999999999 1\n",
            "a\nb\n4 4194304\n",
            "a\nb\n-1 1\n",
            "a\nb\n0 0 \n",
            "a\nb\n0 0 99999999999999999999999999999\n",
            "a\nb\n0 0 1 1\n",
            "\nb\n0 0\n",
            "a\0\nb\n0 0\n",
        ] {
            std::fs::write(&path, text).unwrap();
            assert!(is_damage(&head(&path).unwrap_err()), "{text:?}");
        }
    }
}
