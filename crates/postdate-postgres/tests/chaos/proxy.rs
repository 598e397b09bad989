//! Stands between a client and the server, and does to their connections what networks and crashes do.

use std::{
    collections::HashMap,
    io,
    net::Ipv4Addr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
    task::JoinHandle,
};

use crate::chance::Chance;

/// A proxy before a server. Connections through it end with it.
pub(crate) struct Proxy {
    url: String,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

/// Cuts the connection once, the first time that a statement with these words is executed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trap {
    pub words: &'static str,
    pub at: At,
}

/// Where a trap is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    /// The server does not get the request.
    Request,
    /// The server has done all that it was asked for, and the client does not get the answer.
    Reply,
}

struct Shared {
    upstream: String,
    trap: Mutex<Option<Trap>>,
    /// Words, and others of the same length that clients say instead.
    replaced: Mutex<Option<(&'static str, &'static str)>>,
    /// Draws for each connection after how many bytes of each direction it is cut.
    limits: Mutex<Option<(Chance, u64)>>,
    struck: AtomicUsize,
    is_stalled: watch::Sender<bool>,
    /// Raised to cut all connections.
    generation: watch::Sender<u64>,
}

/// A connection has ended, by a fault or by itself.
struct Ended;

impl From<io::Error> for Ended {
    fn from(_: io::Error) -> Self {
        Self
    }
}

impl Proxy {
    /// Before the server at this URL.
    pub(crate) async fn before(url: &str) -> Self {
        let (user, place) = url.rsplit_once('@').unwrap();
        let (host, database) = place.split_once('/').unwrap();
        let upstream = if host.contains(':') { host.to_owned() } else { format!("{host}:5432") };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            upstream,
            trap: Mutex::new(None),
            replaced: Mutex::new(None),
            limits: Mutex::new(None),
            struck: AtomicUsize::new(0),
            is_stalled: watch::Sender::new(false),
            generation: watch::Sender::new(0),
        });
        // Its faults know messages, not ciphers.
        let next = if database.contains('?') { '&' } else { '?' };
        let url = format!("{user}@127.0.0.1:{port}/{database}{next}sslmode=disable");
        let accepting = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Self { url, shared, accepting }
    }

    /// The URL of the server, through this proxy.
    pub(crate) fn url(&self) -> String {
        self.url.clone()
    }

    /// Has the server understand other words of the same length wherever clients say these.
    pub(crate) fn replace(&self, words: &'static str, by: &'static str) {
        assert_eq!(words.len(), by.len());
        *self.shared.replaced.lock().unwrap() = Some((words, by));
    }

    pub(crate) fn set(&self, trap: Trap) {
        *self.shared.trap.lock().unwrap() = Some(trap);
    }

    /// From now on each new connection is cut after at most so many bytes of each direction.
    pub(crate) fn cut_each_within(&self, bytes: u64, chance: Chance) {
        *self.shared.limits.lock().unwrap() = Some((chance, bytes));
    }

    /// New connections live again.
    pub(crate) fn heal(&self) {
        *self.shared.limits.lock().unwrap() = None;
        self.resume();
        self.cut_all();
    }

    /// How many faults there were.
    pub(crate) fn struck(&self) -> usize {
        self.shared.struck.load(Relaxed)
    }

    /// Lets nothing through, in neither direction.
    pub(crate) fn stall(&self) {
        self.shared.is_stalled.send_replace(true);
    }

    /// Lets everything through again, what was held up first.
    pub(crate) fn resume(&self) {
        self.shared.is_stalled.send_replace(false);
    }

    /// Ends all connections.
    pub(crate) fn cut_all(&self) {
        self.shared.generation.send_modify(|generation| *generation += 1);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.cut_all();
    }
}

impl Shared {
    fn strike(&self) -> Ended {
        self.struck.fetch_add(1, Relaxed);
        Ended
    }

    /// The trap, if a statement walks into it.
    fn sprung(&self, sql: &str) -> Option<Trap> {
        self.trap.lock().unwrap().take_if(|trap| sql.contains(trap.words))
    }

    fn put_words(&self, message: &mut [u8]) {
        let Some((words, by)) = *self.replaced.lock().unwrap() else { return };
        if let Some(at) = message.windows(words.len()).position(|window| window == words.as_bytes()) {
            message[at..at + by.len()].copy_from_slice(by.as_bytes());
            self.struck.fetch_add(1, Relaxed);
        }
    }

    fn limit(&self) -> u64 {
        let mut limits = self.limits.lock().unwrap();
        limits.as_mut().map_or(u64::MAX, |(chance, bytes)| chance.below(*bytes))
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((client, _)) = listener.accept().await {
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            let mut generation = shared.generation.subscribe();
            tokio::select! {
                _ = generation.changed() => {}
                _ = carry(client, &shared) => {}
            }
        });
    }
}

/// Carries both directions until one ends.
async fn carry(client: TcpStream, shared: &Shared) -> Result<(), Ended> {
    let server = TcpStream::connect(&shared.upstream).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    // The answer to the statement that was sent last is not to come through.
    let is_trapped = AtomicBool::new(false);
    let requests = Way { from: from_client, to: to_server, buffer: Vec::new(), left: shared.limit(), shared };
    let replies = Way { from: from_server, to: to_client, buffer: Vec::new(), left: shared.limit(), shared };
    tokio::select! {
        ended = carry_requests(requests, &is_trapped) => ended,
        ended = carry_replies(replies, &is_trapped) => ended,
    }
}

/// One direction of a connection.
struct Way<'a> {
    from: OwnedReadHalf,
    to: OwnedWriteHalf,
    buffer: Vec<u8>,
    /// So many bytes more go through.
    left: u64,
    shared: &'a Shared,
}

impl Way<'_> {
    /// The next message, whole; those of a client begin with one that has no type.
    async fn next(&mut self, has_type: bool) -> Result<Vec<u8>, Ended> {
        let before = usize::from(has_type);
        loop {
            if let Some(length) = self.buffer.get(before..before + 4) {
                let length = u32::from_be_bytes(length.try_into().unwrap()) as usize + before;
                if self.buffer.len() >= length {
                    let rest = self.buffer.split_off(length);
                    return Ok(std::mem::replace(&mut self.buffer, rest));
                }
            }
            if self.from.read_buf(&mut self.buffer).await? == 0 {
                return Err(Ended);
            }
        }
    }

    /// Lets it through, as far as the limit allows.
    async fn pass(&mut self, message: &[u8]) -> Result<(), Ended> {
        let mut stalled = self.shared.is_stalled.subscribe();
        stalled.wait_for(|stalled| !stalled).await.map_err(|_| Ended)?;
        let through = message.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        self.to.write_all(&message[..through]).await?;
        self.left -= through as u64;
        if through < message.len() { Err(self.shared.strike()) } else { Ok(()) }
    }
}

async fn carry_requests(mut way: Way<'_>, is_trapped: &AtomicBool) -> Result<(), Ended> {
    let start = way.next(false).await?;
    way.pass(&start).await?;
    let mut prepared = HashMap::new();
    loop {
        let mut message = way.next(true).await?;
        way.shared.put_words(&mut message);
        let sql = executed(&message, &mut prepared);
        match sql.and_then(|sql| way.shared.sprung(&sql)) {
            Some(Trap { at: At::Request, .. }) => return Err(way.shared.strike()),
            Some(Trap { at: At::Reply, .. }) => is_trapped.store(true, Relaxed),
            None => {}
        }
        way.pass(&message).await?;
    }
}

async fn carry_replies(mut way: Way<'_>, is_trapped: &AtomicBool) -> Result<(), Ended> {
    /// `ReadyForQuery`: all is done, and what is not in a transaction is committed.
    const READY: u8 = b'Z';
    loop {
        let message = way.next(true).await?;
        match is_trapped.load(Relaxed) {
            false => way.pass(&message).await?,
            true if message[0] == READY => return Err(way.shared.strike()),
            true => {}
        }
    }
}

/// The statement that a message of a client executes, if it does. Remembers what is prepared under which name.
fn executed(message: &[u8], prepared: &mut HashMap<String, String>) -> Option<String> {
    let mut texts =
        message[5..].split(|byte| *byte == 0).map(|text| String::from_utf8_lossy(text).into_owned());
    let mut text = || texts.next().unwrap_or_default();
    match message[0] {
        // `Query`.
        b'Q' => Some(text()),
        // `Parse`: a name and the statement.
        b'P' => {
            prepared.insert(text(), text());
            None
        }
        // `Bind`: a portal and the name of a statement.
        b'B' => {
            text();
            prepared.get(&text()).cloned()
        }
        _ => None,
    }
}
