//! Delayed messages and durable queues in a PostgreSQL database.

mod backend;
mod claim;
mod connections;
mod dispatcher;
mod driver;
mod enqueue;
mod error;
mod fetch;
mod group;
mod listener;
mod names;
mod notifier;
mod options;
mod place;
mod position;
mod queues;
mod receive_claim;
mod receiver;
mod record;
mod scheduled;
mod schema;
mod scratch;
mod sender;
mod server;
mod sql;
mod store;
mod storer;
mod time;
mod transaction;
mod warnings;

pub use backend::Postgres;
pub use driver::DRIVER;
pub use options::Options;
pub use queues::Queues;
pub use transaction::PostgresTransaction;

/// The greatest size of a message: headers and body together, in bytes.
const MAX_MESSAGE_BYTES: usize = 32 << 20;
