//! A delayed message store of one's own: a directory of files, and a rename as the commit.
//!
//! It is here to be read beside the guide *Writing a store* (`docs/writing-a-store.md`) and to be copied: it uses
//! nothing but the published interface of postdate, and it passes the published suite.
//!
//! ```
//! use std::{num::NonZeroUsize, time::Duration};
//! use directory_store::Directory;
//! use postdate_core::{Address, DelayedDelivery, Due, Memory, Message, Queues as _, ReceiverExt as _};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let place = tempfile::tempdir()?;
//! # let path = place.path().join("messages");
//! let queues = Memory::new().queues();
//! let billing = Address::new("billing")?;
//! queues.create(&billing).await?;
//!
//! let delivery = DelayedDelivery::builder("orders")
//!     .store(Directory::open(path)?)
//!     .dispatcher(queues.dispatcher())
//!     .start()
//!     .await?;
//! delivery.send("billing", Message::new("is invoice 42 paid?"), Due::after(Duration::from_millis(20))).await?;
//!
//! let batch = queues.receiver(&billing).await?.receive(NonZeroUsize::MIN).await?;
//! assert_eq!(batch.messages[0].message.body, "is invoice 42 paid?");
//! delivery.stop().await;
//! # Ok(())
//! # }
//! ```
//!
//! **Layout.** All names are numbers, so that nothing in an id or in the name of an endpoint can be a path:
//!
//! ```text
//! messages/             the directory
//!   lock                held by the process that uses it
//!   version             of this layout
//!   1/                  an endpoint
//!     name              what it is called
//!     new/              batches that are being written
//!     stored/
//!       7/              a batch, and in it a message that is tried at .., due at .., and failed 2 times:
//!         0_1766649600000000000_1766649500000000000_2
//!         0.error       what its last failed attempt said
//! ```
//!
//! **Durability.** What was acknowledged survives a power failure, if the disk does what it is told: a message is
//! written, synced, and renamed to where it counts, and the rename is synced too.
//!
//! **Processes.** One at a time: it holds a lock of the operating system, which a crash frees at once. Claims and
//! wake-ups are in its memory. Others are refused, so nobody can look into the directory while it is in use; and
//! a network file system may not keep the lock, so it must be a local disk.
//!
//! **Order** is that of attempt time, then of storing. **Resolution** is a nanosecond. **Clock** is that of the
//! system. **Limits**: 4 MiB for headers and body together; a fetch ends at 16 MiB. **Modes**: `None` and
//! `ReceiveOnly`, both at least once.
//!
//! **Costs.** A message costs a sync of its file, and those of a batch go sixteen at a time; a batch costs two more, a
//! removal one for each batch it touches. One change happens at a time. What is stored is in memory but for headers
//! and bodies, and opening reads it all.

mod backend;
mod claim;
mod content;
mod endpoint;
mod error;
mod layout;
mod messages;
mod scheduled;
mod store;
mod wake;

pub use backend::Directory;
