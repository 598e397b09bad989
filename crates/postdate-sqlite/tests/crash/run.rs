//! A place on which several processes work, one after the other, and the history of what they did.

use std::{path::Path, sync::Arc};

use jiff::SignedDuration;
use postdate_history::{
    Archive, Counts, Event, Guarantee, Knowledge, RecordedBackend, Rules, Way, What, file::Recorder,
};

use crate::place::Place;

pub(crate) struct Run {
    pub place: Place,
    pub archive: Archive,
    name: &'static str,
}

impl Run {
    /// On an empty place with a queue.
    pub(crate) async fn new(name: &'static str, guarantee: Guarantee) -> Self {
        let rules = Rules {
            guarantee,
            knowledge: Knowledge::Answers,
            retries: 0,
            shortest_retry: SignedDuration::ZERO,
            resolution: SignedDuration::from_micros(1),
            maximum_lateness: None,
            converges_within: None,
        };
        let place = Place::new();
        place.create_queue().await;
        let archive = Archive::begin(place.directory().join("history"), rules).unwrap();
        Self { place, archive, name }
    }

    /// With a backlog, stored by nobody in particular.
    pub(crate) async fn filled(name: &'static str, guarantee: Guarantee) -> Self {
        let run = Self::new(name, guarantee).await;
        let outside = Arc::new(Recorder::open(&run.archive.file_of(0), None).unwrap());
        run.place.fill(&RecordedBackend::new(run.place.open().await, outside)).await;
        run
    }

    /// A process was killed: what it left is looked at.
    pub(crate) async fn died(&self, process: u32) {
        self.archive.died(process).unwrap();
        self.archive.record(What::Audited { ids: self.place.stored().await });
    }

    pub(crate) async fn judge(self) -> Counts {
        let sent = self.place.sent().await;
        let arrived = sent.iter().map(|queued| Event::arrived(queued, Way::Destination)).collect();
        let keep = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}.jsonl", self.name));
        self.archive.judge(arrived, &keep).unwrap().counts
    }
}
