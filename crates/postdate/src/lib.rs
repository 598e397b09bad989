//! Postdate a message and it is delivered when it falls due, whatever happens in between.
//!
//! ```
//! use std::time::Duration;
//!
//! use postdate::{DelayedDelivery, Due, Message, Queues};
//!
//! # #[cfg(not(feature = "sqlite"))]
//! # fn main() {}
//! # #[cfg(feature = "sqlite")]
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> anyhow::Result<()> {
//! # let directory = tempfile::tempdir()?;
//! # std::env::set_current_dir(&directory)?;
//! let sqlite = postdate::sqlite::Sqlite::open("postdate.db").await?;
//! let delivery = DelayedDelivery::builder("orders")
//!     .store(sqlite.clone())
//!     .dispatcher(sqlite.queues().dispatcher())
//!     .number_of_retries(7)
//!     .start()
//!     .await?;
//!
//! let reminder = Message::new("is invoice 42 paid?").header("tenant", "acme");
//! let sent = delivery.send("billing", reminder, Due::after(Duration::from_secs(1_800))).await?;
//! delivery.cancel(&sent.id).await?;
//! delivery.stop().await;
//! # Ok(())
//! # }
//! ```
//!
//! This crate is [`postdate_core`], which has the seams and the engines, and one module for each backend that its
//! cargo features chose (`sqlite`, which is the default, and `postgres`); [`connect`] finds the backend of a URL such as
//! `sqlite:postdate.db`.

mod connect;
mod memory;

pub use connect::{ConnectError, DRIVERS, connect, connect_with, driver};
pub use postdate_core::*;

/// Store and queues in an SQLite file.
#[cfg(feature = "sqlite")]
pub mod sqlite {
    pub use postdate_sqlite::*;
}

/// Store and queues in a PostgreSQL database.
#[cfg(feature = "postgres")]
pub mod postgres {
    pub use postdate_postgres::*;
}

/// Compiles the README's program, so that it cannot lie. Not part of the documentation: a published crate does not
/// contain the README of the repository.
#[cfg(all(doctest, feature = "sqlite"))]
#[doc = include_str!("../../../README.md")]
struct Readme;
