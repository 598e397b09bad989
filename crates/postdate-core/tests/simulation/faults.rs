//! Faults: those that the world injects, and those that are planted to see whether they are found.

use std::collections::BTreeMap;

use crate::life::Spot;

macro_rules! listed {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) enum $name {
            $($(#[$variant_doc])* $variant,)+
        }

        impl $name {
            pub(crate) const ALL: &[Self] = &[$(Self::$variant),+];
        }
    };
}

listed! {
    /// What the world does to the engine, and what it should bring about. Each must be seen to happen.
    Injected {
        CallFailedBeforeCommit,
        AnswerLostAfterCommit,
        StoreOutage,
        SlowStore,
        DestinationOutage,
        ErrorQueueOutage,
        LostAcknowledgement,
        SlowDestination,
        HangingDestination,
        HangingErrorQueue,
        Rejection,
        DispatcherPanic,
        MissingDestination,
        LostWakeUp,
        SkewedClock,
        StoreClockAhead,
        StoreClockBack,
        ProcessClockLeap,
        SharedTransaction,
        SettledTogether,
        KeptWhenDropped,
        RolledBack,
        FailedStart,
        Expired,
        Freeze,
        Crash,
        Drop,
        Stop,
        Death,
        Restart,
        Cancellation,
        CancellationTooLate,
        Rescheduling,
        ClientRetry,
        LeaseRanOut,
        StaleAnswer,
        Duplicate,
        MoveToErrorQueue,
        HandOver,
        HandOverUnanswered,
        QueueOutage,
        ReceivedAgain,
        LockRanOut,
        UnreadableMessage,
        StoreRefusal,
        StorePanic,
        StoreBreaker,
        ReceiveBreaker,
        FetchBreaker,
        DispatchBreaker,
    }
}

/// How often each happened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    injected: BTreeMap<Injected, u64>,
    /// Where processes were killed.
    strikes: BTreeMap<Spot, u64>,
}

impl Counters {
    pub(crate) fn count(&mut self, what: Injected) {
        self.count_times(what, 1);
    }

    pub(crate) fn count_times(&mut self, what: Injected, times: u64) {
        if times > 0 {
            *self.injected.entry(what).or_default() += times;
        }
    }

    pub(crate) fn strike(&mut self, spot: Spot) {
        *self.strikes.entry(spot).or_default() += 1;
    }

    pub(crate) fn add(&mut self, other: &Self) {
        other.injected.iter().for_each(|(what, times)| self.count_times(*what, *times));
        for (spot, times) in &other.strikes {
            *self.strikes.entry(*spot).or_default() += times;
        }
    }

    /// What never happened.
    pub(crate) fn missing(&self) -> Vec<Injected> {
        Injected::ALL.iter().copied().filter(|what| !self.injected.contains_key(what)).collect()
    }

    /// Where no process was killed. Of what is rare one side of the call is enough.
    pub(crate) fn spared(&self) -> Vec<Spot> {
        let struck = |spot: &Spot| {
            let same =
                |other: &Spot| other == spot || spot.is_rare() && other.operation() == spot.operation();
            self.strikes.keys().any(same)
        };
        Spot::all().into_iter().filter(|spot| !struck(spot)).collect()
    }
}

/// A mistake that a store or an engine could make, planted beside the production code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Planted {
    /// A message is removed when it is fetched.
    RemoveThenSend,
    /// A failed attempt is counted, but its retry time is ignored.
    PoisonWithoutBackOff,
    /// `store` answers before the message is stored.
    AckBeforeCommit,
    /// Nobody is woken, and nobody looks for an hour.
    NoWakeAndNoCap,
    /// The clock of the process decides what is due, not that of the store.
    ClientClock,
    /// `next_due` does not look past what others hold.
    NextDueCountsClaimed,
    /// What was committed late with an earlier due time is passed over.
    Watermark,
    /// A destination that is down counts as one that refuses.
    OutageBurnsRetries,
    /// The error queue acknowledges what it does not hold yet.
    ErrorPathRemovesFirst,
    /// A lost claim still removes, counts and releases.
    NoFence,
    /// A wake-up that is lost costs an hour.
    UncappedSleep,
    /// A message is taken from the queue when it is received.
    CompleteBeforeStore,
    /// A store that is away counts as one that refuses what it is handed.
    StoreOutageIsRefusal,
    /// What stands in a batch beside a message that is refused is refused with it.
    PoisonTakesItsBatch,
    /// Locks on the queue are not renewed.
    LocksNotRenewed,
    /// What a message waited in the queue is measured by the clock of the process.
    DelayByTheClockOfTheProcess,
    /// A dispatcher sends at once what belongs to the transaction of a claim.
    SendOutsideTransaction,
    /// Waits are computed from the clock of the process.
    WaitByProcessClock,
    /// A claim that is lost can be renewed, or so it says.
    UnnoticedLoss,
    /// A claim does not say when it ends, and is not renewed.
    NoRenewal,
    /// Neither releasing nor committing gives anything back.
    NothingGivenBack,
    /// Cancelling does not look at claims.
    CancelHeld,
    /// The same message a second time is a conflict.
    NotIdempotent,
    /// Headers are lost in the store.
    HeadersLost,
    /// A failed attempt is not counted.
    FailureNotCounted,
    /// The clock of the store never goes back.
    ClockNeverGoesBack,
    /// What is too late is sent all the same.
    LatenessIgnored,
    /// A message that is refused is tried once more than it should be.
    OneRetryTooMany,
    /// A claim that is a transaction and is dropped does not do what it settled, and does not say so.
    DropForgets,
}

impl Planted {
    /// The promises by which this may be found.
    pub(crate) fn breaks(self) -> &'static [&'static str] {
        match self {
            Self::RemoveThenSend | Self::ErrorPathRemovesFirst | Self::CompleteBeforeStore => &["S7"],
            Self::PoisonWithoutBackOff | Self::ClientClock | Self::DelayByTheClockOfTheProcess => &["S3"],
            Self::AckBeforeCommit => &["S1"],
            Self::NoWakeAndNoCap | Self::UncappedSleep => &["L1", "L3"],
            Self::NextDueCountsClaimed => &["L5"],
            Self::Watermark => &["L1", "L3", "L5"],
            Self::OutageBurnsRetries | Self::StoreOutageIsRefusal | Self::PoisonTakesItsBatch => &["S9"],
            Self::LocksNotRenewed => &["S6", "L11"],
            Self::NoFence => &["S4", "S5"],
            Self::SendOutsideTransaction => &["S6", "S14"],
            Self::WaitByProcessClock => &["L1", "L3", "L5"],
            Self::UnnoticedLoss => &["S5"],
            Self::NoRenewal => &["S6", "L11"],
            Self::NothingGivenBack => &["S6", "L1", "L3", "L12"],
            Self::CancelHeld => &["S13"],
            Self::NotIdempotent => &["S8"],
            Self::HeadersLost => &["S2"],
            Self::FailureNotCounted => &["S3", "S5"],
            Self::ClockNeverGoesBack => &["S3"],
            Self::LatenessIgnored => &["L7"],
            Self::OneRetryTooMany => &["S10"],
            Self::DropForgets => &["S1", "S5", "S13"],
        }
    }
}
