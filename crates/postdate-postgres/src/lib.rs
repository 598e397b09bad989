//! Delayed messages and durable queues in a PostgreSQL database: for when one machine is not enough.
//!
//! ```no_run
//! # use std::time::Duration;
//! # use postdate_core::{Address, DelayedDelivery, Due, Message, Queues};
//! # async fn deliver() -> Result<(), Box<dyn std::error::Error>> {
//! let postgres = postdate_postgres::Postgres::connect("postgres://app@db.example/app").await?;
//! let queues = postgres.queues();
//! for queue in ["billing", "error"] {
//!     queues.create(&Address::new(queue)?).await?;
//! }
//! let delivery =
//!     DelayedDelivery::builder("orders").store(postgres).dispatcher(queues.dispatcher()).start().await?;
//! delivery.send("billing", Message::new("is invoice 42 paid?"), Due::after(Duration::from_secs(1_800))).await?;
//! # Ok(())
//! # }
//! ```
//!
//! **Server.** PostgreSQL 13 or later, a database in UTF-8, the primary: a replica is refused. The tables stand in a
//! schema of their own, `postdate` unless [`Options::schema`] says otherwise, and are made by `set_up`. A user without
//! the right to make tables lets somebody run what `postdate setup --print` shows; from then on reading and writing
//! rows is enough. [`DRIVER`] tells what a URL may contain.
//!
//! **Encryption.** The server's certificate and its name are verified (`sslmode=verify-full`) unless the host is this
//! machine or the URL says otherwise.
//!
//! **Durability** is the server's: with its defaults what was acknowledged is on its disk. `postdate verify` warns where
//! `fsync`, `full_page_writes` or `synchronous_commit` say otherwise.
//!
//! **Processes.** Any number may store, dispatch, cancel and receive. Whoever dispatches locks rows
//! (`FOR UPDATE SKIP LOCKED`) in a transaction that stays open until its batch is delivered; a process that dies, or a
//! connection that breaks, frees them at once, and one that is frozen within a minute ([`Options::claim_limit`]), by the
//! server's time-out. What was removed or counted is committed all together with the end of the claim.
//!
//! **Clock.** The server's alone: skewed clocks and time zones of programs and sessions do not matter. **Resolution** is
//! one microsecond; due times are rounded up. **Order** is that of attempt time, then of storing. Under a long backlog a
//! drain goes on behind what it fetched last and returns to the front within a second, so that what is stored late with
//! an earlier time waits that long at most. Queues are first in, first out, in the order in which messages were written;
//! of two that are sent at the same time either may be first.
//!
//! **Limits**: 32 MiB for headers and body together, in a queue 256 KiB more; a batch ends at 16 MiB. Names of schemas
//! have 63 bytes at most. **Connections**: each open claim has one, calls share [`Options::connections`], and whoever
//! waits for messages has one more.
//!
//! **Receivers** hold a message for 30 s unless they renew. They do not wait for the disk to know: a crash of the server
//! may free it early, and whoever had it is refused then.
//!
//! # Waking up
//!
//! A handle that waits listens (`LISTEN`); one that stored something due within a minute notifies it after its commit,
//! in a transaction of its own: within the commit, a notification makes all committers of the database wait for each
//! other. What is due later is not told of, since dispatchers look once a minute anyway; what is due in some seconds is
//! told of after an eighth of that time, at most once for many. A listener passes over what is due later than it waits
//! for. So an idle process asks nothing between wake-ups but once a minute.
//!
//! Behind a pooler in transaction mode notifications do not arrive. A handle notices that when it begins to listen, says
//! so in the log, and looks every second instead ([`Options::poll`]). Such a pooler also needs
//! `?statement-cache-capacity=0`, and a time-out of its own for transactions that are idle.
//!
//! # Transactional enqueue
//!
//! [`Postgres::store_in`] stores in the caller's own transaction: a message is scheduled if and only if that commits.
//! Programs in other languages and triggers do the same by a function in the schema:
//!
//! ```sql
//! SELECT postdate.schedule(
//!     endpoint => 'orders', destination => 'billing', body => convert_to('{"invoice": 42}', 'UTF8'),
//!     delay => '30 minutes', headers => '{"tenant": "acme"}', id => 'invoice-42');
//! ```
//!
//! Instead of a `delay` there may be an instant, `due => '2027-01-01T08:00:00+01:00'`, or neither; `headers` and `id` may be
//! left out, too, and the id is returned. Calling it again with the same id and content
//! changes nothing; other content is a `unique_violation`. If a message is due within a minute, either way of storing
//! notifies within the transaction, so that the commit itself wakes whoever dispatches. Commits that do so wait for each
//! other; others do not.
//!
//! # Exactly once
//!
//! In [`TransactionScope`](postdate_core::TransactionMode::TransactionScope) mode, which needs queues in the same schema,
//! fetching, sending and removing are one transaction. That both are in the same server is shown by a lock that is taken
//! through one connection and seen through the other: a clone that was promoted has the same names and identifiers.
//!
//! # Speed
//!
//! `cargo xtask bench --peers postgres/` prints this on your machine. Here: two cores that others used, too, PostgreSQL 15
//! with `fsync` on, messages of 1 KiB with 200 bytes of headers, medians of five rounds in which all took turns; the
//! ratio is that of postdate to the other one within a round.
//!
//! | | postdate | by hand | ratio | best peer | ratio |
//! |---|---|---|---|---|---|
//! | drain, 1 worker | 66,580 /s | 38,277 /s | 1.54 | pgmq 23,219 /s | 2.63 |
//! | drain, 4 workers | 71,220 /s | 57,933 /s | 1.31 | pgmq 27,176 /s | 2.99 |
//! | store, 1,000 messages in each call | 47,994 /s | 47,293 /s | 0.99 | apalis 21,297 /s | 2.21 |
//! | store, eight tasks, one message in each call | 4,728 /s | 3,812 /s | 1.23 | pgmq 2,662 /s | 1.83 |
//! | store, one task, one message in each call | 1,109 /s | 2,161 /s | 0.87 | pgmq 1,362 /s | 1.18 |
//! | drain beside an old snapshot | 52,102 /s | 8,015 /s | 9.75 | pgmq 10,381 /s | 5.50 |
//! | lateness at 40 a second, p50 / p99 | 1.7 / 6.0 ms | 1.4 / 5.7 ms | | graphile_worker 1.0 / 10.2 ms | |
//!
//! A million messages that are due next year cost a drain 4 % of its rate. A delivered message costs 14 microseconds of
//! processor time, client and server together, and 1,509 bytes of write-ahead log; six dispatchers on two cores cost 1.7
//! times as much processor time for each as one. What single stores gain by sharing commits depends on the disk: on a
//! slow one the server's own group commit does nearly as well.
//!
//! # Distributed engines
//!
//! The statements keep to what Citus, YugabyteDB and CockroachDB document: `SKIP LOCKED`, `ON CONFLICT`, `RETURNING` and
//! single-row keys. A handle looks at what the server says it is, and does without what an engine lacks:
//!
//! | engine | instead of `ctid` | set-up | wake-up | `schedule` |
//! |---|---|---|---|---|
//! | PostgreSQL | | advisory lock | `NOTIFY` | yes |
//! | Citus | the key | advisory lock | `NOTIFY` on the coordinator | yes |
//! | YugabyteDB | the key | `IF NOT EXISTS`, repeated | looks every second | yes |
//! | CockroachDB | the key | `IF NOT EXISTS`, repeated | looks every second | no |
//!
//! Exactly once needs an advisory lock for its proof. None of the three was run against: the table says what is
//! documented.
//!
//! # A billion pending messages (a plan on paper)
//!
//! One table holds tens of millions well: what is due later is never read. Beyond that vacuum and the indexes' size are
//! what hurts, and both are cured by partitions, in two steps that need no change of the statements, since both keys
//! begin with what they are found by:
//!
//! 1. *By time*: `PARTITION BY RANGE (attempt_at)`, by day for the next weeks and by month after that. Fetching reads one
//!    partition and the next. The table's key would have to contain the attempt time, so uniqueness of ids moves to a
//!    narrow table `(endpoint, id) -> attempt_at`, which cancelling and storing look into; a rescheduled message moves
//!    between partitions by delete and insert. A day that is over is detached and dropped: no vacuum of its rows.
//! 2. *By hash*: each of these `PARTITION BY HASH (id)` into as many parts as there are dispatchers, each of which begins
//!    its search in a part of its own. On Citus and CockroachDB the hash is the distribution key instead. Order holds
//!    within a part.
//!
//! At 1.4 KiB a message, a billion are 1.4 TB. A month of them in 16 parts are 3 to 8 GB each, which vacuum passes over in
//! a minute or so; a table without parts would have to be passed over as a whole.

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
