//! The tasks on PostgreSQL: postdate beside loops on the same sqlx and other people's queues.

mod by_hand;
mod gauge;
mod ours;
mod peers;
mod scenarios;
mod server;

use std::sync::Arc;

use anyhow::Result;

pub(crate) use scenarios::ALL;

use crate::Options;

/// Where these scenarios take place.
#[derive(Debug)]
pub(crate) struct Arena {
    server: server::Server,
    peers: Option<peers::Peers>,
}

impl Arena {
    pub(crate) fn of(options: &Options) -> Result<Option<Arc<Self>>> {
        let Some(url) = &options.postgres else { return Ok(None) };
        let peers = options.peers.as_deref().map(peers::Peers::at);
        Ok(Some(Arc::new(Self { server: server::Server::new(url)?, peers })))
    }

    /// Removes what a scenario left behind.
    pub(crate) async fn sweep(&self) -> Result<()> {
        self.server.sweep().await
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use test_postgres::{Server, Settings};

    pub(crate) fn server() -> Server {
        Server::start(&Settings::fast()).unwrap()
    }
}
