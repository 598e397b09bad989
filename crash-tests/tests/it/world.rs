//! The real backend, and everything one can do with it, written down in a ledger.

use std::{num::NonZeroUsize, path::Path, sync::Arc, time::Duration};

use crash_tests::Chance;
use futures::future::join_all;
use jiff::Timestamp;
use postdate::{
    Address, Backend as _, Cancellation, DelayedMessage, DelayedMessageStore, DelayedMessageStoreExt as _,
    DispatchError, Dispatcher, Due, EndpointName, Failure, Message, MessageId, OutgoingMessage, Queues as _,
    Receiver, Rescheduling, Selection, StoreError, TransactionMode,
    sqlite::{Durability, Options, Queues, Sqlite},
};

use crate::{
    ledger::{Change, Ledger, Step},
    place::connect,
};

/// Due times, in seconds since 1970.
pub(crate) const PAST: i64 = 1_600_000_000;
pub(crate) const FUTURE: i64 = 4_000_000_000;

pub(crate) const ORDERS: &str = "orders";
pub(crate) const INVOICES: &str = "invoices";
pub(crate) const BILLING: &str = "billing";
pub(crate) const SHIPPING: &str = "shipping";
pub(crate) const ARCHIVE: &str = "archive";
pub(crate) const QUEUES: [&str; 3] = [ARCHIVE, BILLING, SHIPPING];

/// A call failed.
#[derive(Debug)]
pub(crate) enum Trouble {
    Store(StoreError),
    Dispatch(DispatchError),
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<DispatchError> for Trouble {
    fn from(error: DispatchError) -> Self {
        Self::Dispatch(error)
    }
}

pub(crate) type Result<T, E = Trouble> = std::result::Result<T, E>;

/// The open file: the endpoint `orders` shares a transaction with the queues, `invoices` delivers at least once.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) queues: Queues,
    pub(crate) orders: Arc<dyn DelayedMessageStore>,
    pub(crate) invoices: Arc<dyn DelayedMessageStore>,
    dispatcher: Arc<dyn Dispatcher>,
    receiver: Arc<dyn Receiver>,
}

impl World {
    /// Opens the file and sets it up as far as that is missing.
    pub(crate) async fn open(path: &Path, durability: Durability) -> Result<Self> {
        let sqlite = Sqlite::with_options(path, Options::new().durability(durability)).await?;
        let queues = sqlite.queues();
        let [orders, invoices] = [ORDERS, INVOICES].map(|name| EndpointName::new(name).unwrap());
        sqlite.set_up(&orders).await?;
        sqlite.set_up(&invoices).await?;
        for queue in QUEUES {
            queues.create(&address(queue)).await?;
        }
        Ok(Self {
            orders: sqlite.open(&orders, TransactionMode::TransactionScope).await?,
            invoices: sqlite.open(&invoices, TransactionMode::ReceiveOnly).await?,
            dispatcher: queues.dispatcher(),
            receiver: queues.receiver(&address(BILLING)).await?,
            queues,
        })
    }

    /// Stores messages, all or none, in the endpoint `orders` unless their names begin with `i`.
    pub(crate) async fn store(&self, ledger: &Ledger, names: &[String], due: i64) -> Result<()> {
        let messages: Vec<_> = names.iter().map(|name| message(name, due)).collect();
        let stored = self.of(&names[0]).store(&messages);
        ledger.step(each(names, &[Change::Store { due }]), stored).await?;
        Ok(())
    }

    pub(crate) async fn cancel(&self, ledger: &Ledger, name: &String) -> Result<Cancellation> {
        let ids = [id(name)];
        let cancel = self.of(name).cancel(&ids);
        Ok(ledger.step(each([name], &[Change::Remove]), cancel).await?[0])
    }

    pub(crate) async fn reschedule(&self, ledger: &Ledger, name: &String, due: i64) -> Result<Rescheduling> {
        let id = id(name);
        let reschedule = self.of(name).reschedule(&id, Due::At(Timestamp::from_second(due).unwrap()));
        Ok(ledger.step(each([name], &[Change::Reschedule { due }]), reschedule).await?)
    }

    /// Sends what is due in `orders` to `billing` and removes it, or counts a failure, all in one transaction.
    /// Answers how many messages that were.
    pub(crate) async fn deliver_orders(&self, ledger: &Ledger, limit: usize) -> Result<usize> {
        let mut batch = self.orders.fetch(count(limit)).await?;
        let (fails, sends): (Vec<OutgoingMessage>, Vec<_>) =
            batch.messages.iter().map(|due| due.message.clone()).partition(fails);
        for outcome in self.dispatcher.dispatch(&sends, batch.claim.enlist()).await {
            outcome?;
        }
        batch.claim.remove(&ids(&sends)).await?;
        batch.claim.increment_failure_count(&failures(&fails)).await?;
        let sent = each(names(&sends), &[Change::Remove, Change::Send(BILLING)]);
        let step = [sent, each(names(&fails), &[Change::Fail])].concat();
        if !step.is_empty() {
            ledger.step(step, batch.claim.commit()).await?;
        }
        Ok(batch.messages.len())
    }

    /// Sends what is due in `invoices` to `shipping`, then removes it.
    pub(crate) async fn deliver_invoices(&self, ledger: &Ledger, limit: usize) -> Result<usize> {
        let mut batch = self.invoices.fetch(count(limit)).await?;
        let sends: Vec<_> = batch.messages.iter().map(|due| due.message.clone()).collect();
        if sends.is_empty() {
            return Ok(0);
        }
        let dispatch = async {
            let outcomes = self.dispatcher.dispatch(&sends, None).await;
            outcomes.into_iter().collect::<Result<Vec<_>, _>>()
        };
        ledger.step(each(names(&sends), &[Change::Send(SHIPPING)]), dispatch).await?;
        let sent = ids(&sends);
        let remove = async |claim: &mut dyn postdate::Claim| {
            ledger.step(each(names(&sends), &[Change::Remove]), claim.remove(&sent)).await
        };
        // Giving up would send it all again, so the delivery tries once more too.
        let removed = match remove(&mut *batch.claim).await {
            Err(_) => remove(&mut *batch.claim).await?,
            Ok(removed) => removed,
        };
        assert!(removed.iter().all(|removed| *removed), "a message was removed by somebody else");
        Ok(sends.len())
    }

    /// Receives from `billing`: takes the first half out and moves the others to `archive`.
    pub(crate) async fn receive(&self, ledger: &Ledger, limit: usize) -> Result<usize> {
        let mut batch = self.receiver.try_receive(&Selection::Next(count(limit))).await?;
        let received: Vec<_> = batch.messages.iter().map(|queued| queued.message.clone()).collect();
        let positions: Vec<_> = batch.messages.iter().map(|queued| queued.position).collect();
        let half = received.len().div_ceil(2);
        if half > 0 {
            let complete = batch.claim.complete(&positions[..half]);
            let completed =
                ledger.step(each(names(&received[..half]), &[Change::Take(BILLING)]), complete).await?;
            assert!(completed.iter().all(|completed| *completed), "the lock was lost");
        }
        if half < received.len() {
            let archive = address(ARCHIVE);
            let moving = batch.claim.move_to(&positions[half..], &archive);
            let step = each(names(&received[half..]), &[Change::Take(BILLING), Change::Send(ARCHIVE)]);
            let moved = ledger.step(step, moving).await?;
            assert!(moved.iter().all(|moved| *moved), "the lock was lost");
        }
        Ok(received.len())
    }

    fn of(&self, name: &str) -> &dyn DelayedMessageStore {
        if name.starts_with('i') { &*self.invoices } else { &*self.orders }
    }

    /// Several tasks at once: some store, cancel and reschedule, one delivers each endpoint, one receives, and
    /// somebody writes the log back every now and then. `prefix` makes the names unique.
    pub(crate) async fn be_busy(&self, path: &Path, ledger: &Ledger, prefix: &str, chance: &mut Chance) {
        let storing = (0..4).map(|task| self.change_minds(ledger, format!("{prefix}{task}"), 6));
        let orders = async {
            for _ in 0..12 {
                self.deliver_orders(ledger, 3).await.unwrap();
                tokio::task::yield_now().await;
            }
        };
        let invoices = async {
            for _ in 0..8 {
                self.deliver_invoices(ledger, 2).await.unwrap();
            }
        };
        let receiving = async {
            for _ in 0..8 {
                self.receive(ledger, 3).await.unwrap();
            }
        };
        let checkpoints = async {
            let connection = connect(path).unwrap();
            for _ in 0..4 {
                for _ in 0..5 + chance.below(20) {
                    tokio::time::sleep(Duration::from_micros(300)).await;
                }
                let how = chance.one_of(&["PASSIVE", "PASSIVE", "RESTART", "TRUNCATE"]);
                let written = connection.query_row(&format!("PRAGMA wal_checkpoint({how})"), [], |_| Ok(()));
                written.unwrap();
            }
        };
        tokio::join!(join_all(storing), orders, invoices, receiving, checkpoints);
    }

    async fn change_minds(&self, ledger: &Ledger, task: String, rounds: usize) {
        for round in 0..rounds {
            let endpoint = if round % 3 == 1 { "i" } else { "o" };
            let name = |part: &str| format!("{endpoint}{task}-{round}{part}");
            let one = name("");
            match round % 6 {
                0 | 1 => self.store(ledger, &[one], PAST).await.unwrap(),
                2 => self.store(ledger, &["a", "b", "c"].map(name), PAST).await.unwrap(),
                3 => {
                    self.store(ledger, std::slice::from_ref(&one), FUTURE).await.unwrap();
                    assert_eq!(self.cancel(ledger, &one).await.unwrap(), Cancellation::Cancelled);
                }
                4 => {
                    self.store(ledger, std::slice::from_ref(&one), FUTURE).await.unwrap();
                    self.reschedule(ledger, &one, FUTURE + 1).await.unwrap();
                }
                _ => {
                    self.store(ledger, std::slice::from_ref(&one), FUTURE).await.unwrap();
                    self.reschedule(ledger, &one, PAST).await.unwrap();
                }
            }
        }
    }
}

pub(crate) fn address(name: &str) -> Address {
    Address::new(name).unwrap()
}

pub(crate) fn id(name: &str) -> MessageId {
    MessageId::new(name).unwrap()
}

pub(crate) fn count(number: usize) -> NonZeroUsize {
    NonZeroUsize::new(number).unwrap()
}

/// The message of a name, with a body that can be told from every other.
pub(crate) fn message(name: &str, due: i64) -> DelayedMessage {
    let destination = if name.starts_with('i') { SHIPPING } else { BILLING };
    let message = Message::new(body(name)).header("name", name).id(id(name));
    message.to(address(destination), Due::At(Timestamp::from_second(due).unwrap()))
}

/// Between nothing and three pages, or very much.
pub(crate) fn body(name: &str) -> Vec<u8> {
    let seed = name.bytes().fold(7_u64, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
    let mut chance = Chance::new(seed);
    let size = if name.ends_with("big") { 6 << 20 } else { chance.one_of(&[0, 100, 700, 3_000, 11_000]) };
    chance.bytes(size)
}

/// Some are never delivered.
fn fails(message: &OutgoingMessage) -> bool {
    message.id.as_str().ends_with("-0")
}

fn failures(messages: &[OutgoingMessage]) -> Vec<Failure> {
    let failure = |message: &OutgoingMessage| Failure {
        id: message.id.clone(),
        retry_after: Duration::from_secs(3_600),
        error: "no".to_owned(),
    };
    messages.iter().map(failure).collect()
}

fn ids(messages: &[OutgoingMessage]) -> Vec<MessageId> {
    messages.iter().map(|message| message.id.clone()).collect()
}

fn names(messages: &[OutgoingMessage]) -> impl Iterator<Item = &str> {
    messages.iter().map(|message| message.id.as_str())
}

/// The same changes for each.
fn each(names: impl IntoIterator<Item = impl Into<String> + Clone>, changes: &[Change]) -> Step {
    names.into_iter().map(|name| (name.into(), changes.to_vec())).collect()
}
