//! Seams and engines of postdate. No database and no network here.
//!
//! A [`Backend`] opens a [`DelayedMessageStore`] for an endpoint; a [`Claim`] is the lock on what was fetched
//! from it; [`ScheduledMessages`] lets people look and change their minds. A [`Dispatcher`] sends to
//! destinations, [`Queues`] and [`Receiver`] are where local messages arrive. Two engines run on these
//! seams: [`DelayedDelivery`] takes messages from the store to their destinations, a [`Pump`] from a queue into the
//! store. [`Memory`] is the reference backend.

mod capability;
mod clock;
pub mod deferral;
mod delivery;
mod dispatch;
mod driver;
mod engine;
mod enlist;
mod error;
pub mod error_queue;
mod event;
mod machine;
mod memory;
mod message;
mod observer;
mod poller;
mod pump;
mod queue;
mod scheduled;
mod settings;
mod store;
pub mod wake;

pub use capability::{Capabilities, ClaimKind, TransactionMode};
pub use clock::{Clock, SystemClock, TokioClock, round_up};
pub use deferral::{DeferralFormat, DeferralHeaders, NotDeferred};
pub use delivery::{Builder, DelayedDelivery, Pump, SendError, Sent, StartError, Stopped};
pub use dispatch::{DispatchError, DispatchErrorKind, Dispatcher};
pub use driver::{Connected, Driver, InvalidStoreUrl, ScratchPlace, StoreUrl};
pub use enlist::Enlistment;
pub use error::{Operation, StoreError, StoreErrorKind};
pub use event::{BreakerName, CriticalError, Event, Observer, Reason};
pub use machine::Backoff;
pub use memory::{Memory, MemoryBuilder, MemoryQueues};
pub use message::{
    Address, DelayedMessage, Due, DueMessage, EncodedHeaders, EndpointName, Headers, HeadersError,
    InvalidName, Message, MessageId, OutgoingMessage,
};
pub use observer::{LATENESS_BUCKETS, Metrics, MetricsSnapshot, TracingObserver};
pub use queue::{
    QueueStatus, QueuedMessage, Queues, ReceiveClaim, ReceivedBatch, Receiver, ReceiverExt, Selection,
};
pub use scheduled::{
    Cancellation, Cursor, Filter, ListQuery, Listing, MessageState, Rescheduling, ScheduledMessage,
    ScheduledMessages, ScheduledSummary, Stats,
};
pub use settings::{CatchUp, Settings};
pub use store::{
    Backend, Claim, DelayedMessageStore, DelayedMessageStoreExt, Dispatching, DueBatch, Failure, FetchDue,
    NextDue,
};
