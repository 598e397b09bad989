//! Delayed messages and durable queues in one SQLite file: the embedded default of postdate.
//!
//! ```
//! # use postdate_core::{Address, Backend, DelayedMessageStoreExt, Due, EndpointName, Message, TransactionMode};
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("postdate.db");
//! let sqlite = postdate_sqlite::Sqlite::open(path).await?;
//! let orders = EndpointName::new("orders")?;
//! sqlite.set_up(&orders).await?;
//! let store = sqlite.open(&orders, TransactionMode::ReceiveOnly).await?;
//! store.store_one(Message::new("hello").to(Address::new("billing")?, Due::NOW)).await?;
//! # Ok(())
//! # }
//! ```
//!
//! **Durability.** What was acknowledged survives a power failure: every commit waits for the disk
//! ([`Durability::PowerLoss`]). [`Durability::ProcessCrash`] is faster and survives a crash of the process only.
//!
//! **Processes.** Any number may open the file, store, list, cancel, send and receive. The messages of an endpoint
//! are dispatched by one *open file* at a time, the first that fetches: it holds a lock of the operating system on
//! `<file>-dispatch-<n>` until its last store and claim of that endpoint are dropped or its process ends. The others
//! fetch nothing and are told that the store is contended. All must agree on the time and see the same local disk:
//! network file systems are refused where they are known, on Linux by the type of the file system and on Windows by
//! the path behind a drive or a link, and so is, on Unix, a file with a second name (a hard link). Beside the file
//! stand SQLite's `-wal` and `-shm`, and `<file>-claims-<n>`, where the one that dispatches shows others what it
//! holds; all have the mode of the file, and its owner where root makes them.
//!
//! **Order.** Due messages come in the order of attempt time, then of storing. Queues are first in, first out; a
//! message that was given back is first again.
//!
//! **Resolution** is one microsecond; due times are rounded up. **Clock** is that of the process, or the one in
//! [`Options`]. **Limits**: 32 MiB for headers and body together, in a queue 256 KiB more; a batch ends at 16 MiB.
//!
//! **Costs.** One thread writes, and what is asked for while it is busy shares the next transaction: eight tasks
//! that store one message each pay for one wait for the disk, not for eight. A fetch writes nothing. In
//! [`TransactionScope`](postdate_core::TransactionMode::TransactionScope) mode, which needs queues in the same
//! file, a batch is sent and removed by one commit. A waiting process costs nothing: it is woken by its own commits
//! and, where the system can watch a file, by those of others (elsewhere it looks every 250 ms).
//!
//! **Receivers** hold a message for 30 s unless they renew. A lock that ends more than a minute from now was taken by
//! a wrong clock and does not count.

mod backend;
mod claim;
mod dispatcher;
mod driver;
mod error;
mod fetch;
mod file;
mod hold;
mod options;
mod queues;
mod receive_claim;
mod receiver;
mod record;
mod scheduled;
mod schema;
mod scratch;
mod store;
mod time;
mod transaction;
mod writer;

pub use backend::Sqlite;
pub use driver::DRIVER;
pub use options::{Durability, Options, UnknownDurability};
pub use queues::Queues;
pub use transaction::SqliteTransaction;

/// The greatest size of a message: headers and body together, in bytes.
const MAX_MESSAGE_BYTES: usize = 32 << 20;
