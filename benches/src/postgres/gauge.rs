//! What a server does while somebody works with it.

use std::{fs, time::Duration};

use anyhow::Result;
use sqlx::{PgConnection, query_scalar};

use crate::cpu::ServerWork;

const LOG_POSITION: &str = "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint";
const BACKEND: &str = "SELECT pg_backend_pid()";
/// The unit of times in `/proc`, on every Linux that runs on what we support.
const TICK: Duration = Duration::from_millis(10);

/// A look at the server that goes on.
#[derive(Debug)]
pub(crate) struct Gauge {
    connection: PgConnection,
    /// The server's first process, if it runs on this machine.
    postmaster: Option<u32>,
    cpu: Option<Duration>,
    log_position: i64,
}

impl Gauge {
    pub(super) async fn start(mut connection: PgConnection) -> Result<Self> {
        let backend: i32 = query_scalar(BACKEND).fetch_one(&mut connection).await?;
        let postmaster = u32::try_from(backend).ok().and_then(postmaster);
        let log_position = query_scalar(LOG_POSITION).fetch_one(&mut connection).await?;
        Ok(Self { connection, postmaster, cpu: postmaster.and_then(cpu), log_position })
    }

    pub(crate) async fn stop(mut self) -> Result<ServerWork> {
        let now = self.postmaster.and_then(cpu);
        let log_position: i64 = query_scalar(LOG_POSITION).fetch_one(&mut self.connection).await?;
        let wal_bytes = (log_position - self.log_position).unsigned_abs();
        Ok(ServerWork { cpu: now.zip(self.cpu).map(|(now, then)| now.saturating_sub(then)), wal_bytes })
    }
}

/// The parent of a backend, if that is a process of PostgreSQL here and not on another machine or in a container.
fn postmaster(backend: u32) -> Option<u32> {
    let stat = Stat::read(backend)?;
    (stat.command == "postgres").then_some(stat.parent)
}

/// Of the first process, its children, and those that have ended.
fn cpu(postmaster: u32) -> Option<Duration> {
    let ended = Stat::read(postmaster)?;
    let mut ticks = ended.own + ended.of_ended_children;
    for entry in fs::read_dir("/proc").ok()?.flatten() {
        let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
        if let Some(stat) = pid.and_then(Stat::read)
            && stat.parent == postmaster
        {
            ticks += stat.own;
        }
    }
    Some(TICK * ticks)
}

/// What `/proc/PID/stat` says; times in ticks.
struct Stat {
    command: String,
    parent: u32,
    own: u32,
    of_ended_children: u32,
}

impl Stat {
    fn read(pid: u32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// The command stands in parentheses, and may have some itself.
    fn parse(line: &str) -> Option<Self> {
        let (before, after) = line.rsplit_once(") ")?;
        let (_, command) = before.split_once(" (")?;
        let words: Vec<&str> = after.split(' ').collect();
        let number = |index: usize| words.get(index)?.parse::<u32>().ok();
        Some(Self {
            command: command.to_owned(),
            parent: number(1)?,
            own: number(11)? + number(12)?,
            of_ended_children: number(13)? + number(14)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_read_whatever_it_is_called() {
        let line = "4242 (a) (b) S 17 4242 4242 0 -1 4194560 100 200 0 0 5 6 70 80 20 0 1 0 900 1 2 3";
        let stat = Stat::parse(line).unwrap();
        assert_eq!((stat.command.as_str(), stat.parent), ("a) (b", 17));
        assert_eq!((stat.own, stat.of_ended_children), (11, 150));
    }
}
