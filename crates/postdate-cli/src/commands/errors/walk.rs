//! From one end of a queue to the other.

use postdate::{Address, QueuedMessage, Queues};

use crate::{commands::queue::PAGE, exit::Failure};

/// A look at every message of a queue, page by page, without taking any.
#[derive(Debug)]
pub(super) struct Walk<'a> {
    queues: &'a dyn Queues,
    queue: &'a Address,
    after: u64,
}

impl<'a> Walk<'a> {
    pub(super) fn new(queues: &'a dyn Queues, queue: &'a Address) -> Self {
        Self { queues, queue, after: 0 }
    }

    /// The next page, or `None` at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<QueuedMessage>>, Failure> {
        let page = self.queues.browse(self.queue, self.after, PAGE).await?;
        let Some(last) = page.last() else { return Ok(None) };
        self.after = last.position;
        Ok(Some(page))
    }
}
