//! `errors`: what could not be delivered.

mod failed;
mod retry;
mod walk;

use postdate::{Address, MessageId, Queues};

use crate::{
    cli::{ErrorsArgs, ErrorsVerb, Options},
    commands::queue,
    exit::{Exit, Failure},
    output::{Output, human::Table},
    session::{Session, Transport},
};
use failed::{Failed, Shown};
use walk::Walk;

pub(crate) async fn run(args: &ErrorsArgs, options: &Options, output: &Output) -> Result<Exit, Failure> {
    let error_queue = &args.error_queue.name;
    // Only what goes back to the store needs one.
    let looking = async || Transport::existing(options).await;
    match &args.verb {
        ErrorsVerb::List { queue, paging } => {
            let transport = looking().await?;
            let queues = transport.queues()?.as_ref();
            list(queues, error_queue, queue.as_ref(), paging.limit(), output).await
        }
        ErrorsVerb::Show { id } => show(looking().await?.queues()?.as_ref(), error_queue, id, output).await,
        ErrorsVerb::Retry(args) => {
            retry::run(&Session::existing(options).await?, error_queue, args, output).await
        }
        ErrorsVerb::Purge { consent } => {
            queue::purge(looking().await?.queues()?.as_ref(), error_queue, consent, output).await?;
            Ok(Exit::Ok)
        }
    }
}

async fn list(
    queues: &dyn Queues,
    error_queue: &Address,
    queue: Option<&Address>,
    limit: usize,
    output: &Output,
) -> Result<Exit, Failure> {
    let mut table = Table::new(&["ID", "QUEUE", "FAILED", "REASON", "ERROR"]);
    let mut left = limit;
    let mut walk = Walk::new(queues, error_queue);
    while let Some(page) = walk.next().await? {
        let failed: Vec<Failed> = page
            .iter()
            .map(Failed::from)
            .filter(|failed| queue.is_none_or(|queue| failed.was_for(queue)))
            .collect();
        let shown = &failed[..left.min(failed.len())];
        output.print_rows(&mut table, shown)?;
        left -= shown.len();
        if shown.len() < failed.len() {
            output.note("there are more; --limit N or --all shows them");
            break;
        }
    }
    Ok(Exit::Ok)
}

async fn show(
    queues: &dyn Queues,
    error_queue: &Address,
    id: &MessageId,
    output: &Output,
) -> Result<Exit, Failure> {
    let mut walk = Walk::new(queues, error_queue);
    while let Some(page) = walk.next().await? {
        if let Some(found) = page.iter().find(|queued| queued.message.id == *id) {
            output.print(&Shown::from(found))?;
            return Ok(Exit::Ok);
        }
    }
    let message =
        format!("no message {id} is in the queue {error_queue}; `postdate errors list` shows what is");
    Err(Failure::new(Exit::NotFound, message))
}
