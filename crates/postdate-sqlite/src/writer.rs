//! The one thread that writes: what is asked for meanwhile shares one transaction.

mod gather;
mod group;
mod job;
#[cfg(test)]
mod tests;

use std::{
    io,
    sync::{Arc, mpsc},
    thread,
};

use rusqlite::Connection;
use tokio::sync::oneshot;

pub(crate) use job::{Tx, Work};

use crate::{error::Result, file::Shared};
use group::Worker;
use job::{Job, Task};

/// Hands work to the writer thread, which ends when this is dropped and all work is done.
#[derive(Debug)]
pub(crate) struct Writer {
    jobs: mpsc::Sender<Box<dyn Job>>,
}

impl Writer {
    /// Starts the thread on its connection.
    pub(crate) fn start(connection: Connection, shared: Arc<Shared>) -> io::Result<Self> {
        let (jobs, queue) = mpsc::channel();
        // Made here and not in the thread: what others commit after this call is news to it.
        let worker = Worker::new(connection, shared);
        thread::Builder::new().name("postdate-writer".to_owned()).spawn(move || worker.run(queue))?;
        Ok(Self { jobs })
    }

    /// Queues work. It is done unless the answer is no longer wanted when its turn comes; an answer comes after
    /// the commit. No answer at all means that the thread is gone.
    pub(crate) fn submit<T, F>(&self, work: Work, run: F) -> oneshot::Receiver<Result<T>>
    where
        T: Send + 'static,
        F: FnOnce(&mut Tx<'_>) -> Result<T> + Send + 'static,
    {
        let (task, answer) = Task::new(work, run);
        // Where the thread is gone the task is dropped, and its answer with it.
        drop(self.jobs.send(Box::new(task)));
        answer
    }

    /// Queues work whose answer nobody waits for.
    pub(crate) fn submit_unasked<F>(&self, work: Work, run: F)
    where
        F: FnOnce(&mut Tx<'_>) -> Result<()> + Send + 'static,
    {
        drop(self.jobs.send(Box::new(Task::unasked(work, run))));
    }
}
