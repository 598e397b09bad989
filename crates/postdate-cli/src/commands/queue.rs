//! `queue`: creating, listing, browsing and purging queues.

use std::{
    io::{self, IsTerminal, Write},
    num::NonZeroUsize,
};

use jiff::Timestamp;
use postdate::{Address, QueueStatus, Queues};
use serde::Serialize;

use crate::{
    cli::{Consent, Options, QueueVerb},
    exit::{Exit, Failure},
    output::{
        Output, Report,
        escape::{escape, escape_bytes},
        human::{Row, Table, age},
        json,
        time::local,
    },
    session::Transport,
};

/// So many messages are looked at in one go: their bodies are in memory.
pub(crate) const PAGE: NonZeroUsize = NonZeroUsize::MIN.saturating_add(99);

#[derive(Serialize)]
struct Created<'a> {
    queue: &'a str,
    created: bool,
}

/// A queue in a list or a status.
#[derive(Debug, Serialize)]
pub(crate) struct Depth {
    pub(crate) queue: String,
    pub(crate) depth: u64,
    oldest: Option<Timestamp>,
}

#[derive(Serialize)]
struct Purged<'a> {
    queue: &'a str,
    removed: u64,
}

#[derive(Serialize)]
struct Browsed {
    #[serde(flatten)]
    message: json::Queued,
    #[serde(skip)]
    cells: Vec<String>,
}

pub(crate) async fn run(verb: &QueueVerb, options: &Options, output: &Output) -> Result<Exit, Failure> {
    match verb {
        QueueVerb::Create { names } => {
            let transport = Transport::prepare(options).await?;
            for name in names {
                let created = transport.queues()?.create(name).await?;
                output.print(&Created { queue: name.as_str(), created })?;
            }
        }
        QueueVerb::List => {
            let transport = Transport::existing(options).await?;
            let queues = transport.queues()?.list().await?;
            let rows: Vec<Depth> = queues.iter().map(Depth::from).collect();
            output.print_rows(&mut Table::new(&["QUEUE", "MESSAGES", "OLDEST"]), &rows)?;
        }
        QueueVerb::Purge { name, consent } => {
            let transport = Transport::existing(options).await?;
            purge(transport.queues()?.as_ref(), name, consent, output).await?;
        }
        QueueVerb::Browse { name, paging } => {
            let transport = Transport::existing(options).await?;
            browse(transport.queues()?.as_ref(), name, paging.limit(), output).await?;
        }
    }
    Ok(Exit::Ok)
}

/// Removes all messages of a queue, after asking where somebody can be asked.
pub(crate) async fn purge(
    queues: &dyn Queues,
    queue: &Address,
    consent: &Consent,
    output: &Output,
) -> Result<(), Failure> {
    if !consent.yes && !agreed(queue)? {
        return Err(Failure::new(Exit::Failure, "nothing was removed"));
    }
    let removed = queues.purge(queue).await?;
    output.print(&Purged { queue: queue.as_str(), removed })
}

async fn browse(
    queues: &dyn Queues,
    queue: &Address,
    mut left: usize,
    output: &Output,
) -> Result<(), Failure> {
    let mut table = Table::new(&["ID", "ENQUEUED", "RECEIVED", "BODY"]);
    let mut after = 0;
    while let Some(limit) = NonZeroUsize::new(left.min(PAGE.get())) {
        let page = queues.browse(queue, after, limit).await?;
        let Some(last) = page.last() else { return Ok(()) };
        after = last.position;
        left -= page.len();
        let rows: Vec<Browsed> = page.iter().map(Browsed::from).collect();
        output.print_rows(&mut table, &rows)?;
    }
    if !queues.browse(queue, after, NonZeroUsize::MIN).await?.is_empty() {
        output.note("there are more; --limit N or --all shows them");
    }
    Ok(())
}

fn agreed(queue: &Address) -> Result<bool, Failure> {
    if !io::stdin().is_terminal() {
        return Err(Failure::usage(format!("to remove all messages of {queue} for good, add --yes")));
    }
    write!(io::stderr(), "Remove all messages of {} for good? [y/N] ", escape(queue.as_str()))?;
    io::stderr().flush()?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

impl From<&QueueStatus> for Depth {
    fn from(status: &QueueStatus) -> Self {
        Self { queue: status.name.to_string(), depth: status.depth, oldest: status.oldest }
    }
}

impl Row for Depth {
    fn cells(&self) -> Vec<String> {
        let oldest = self.oldest.map(|oldest| age(oldest, Timestamp::now()));
        vec![self.queue.clone(), self.depth.to_string(), oldest.unwrap_or_default()]
    }
}

impl From<&postdate::QueuedMessage> for Browsed {
    fn from(queued: &postdate::QueuedMessage) -> Self {
        const SHOWN: usize = 60;
        let body = &queued.message.body;
        let mut beginning = escape_bytes(&body[..body.len().min(SHOWN)]);
        if body.len() > SHOWN {
            beginning.push_str(" ...");
        }
        let cells = vec![
            queued.message.id.to_string(),
            local(queued.enqueued),
            format!("{}x", queued.deliveries),
            beginning,
        ];
        Self { message: json::Queued::from(queued), cells }
    }
}

impl Row for Browsed {
    fn cells(&self) -> Vec<String> {
        self.cells.clone()
    }
}

impl Report for Created<'_> {
    fn human(&self, out: &mut dyn Write) -> io::Result<()> {
        let what = if self.created { "created" } else { "was there already" };
        writeln!(out, "{}  {what}", escape(self.queue))
    }
}

impl Report for Purged<'_> {
    fn human(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{}  {} messages removed", escape(self.queue), self.removed)
    }
}
