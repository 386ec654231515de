//! Bytes in, bytes out: everything that a client has sent so far is answered in one go.
//!
//! Must not know: sockets.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tollgate_core::{InvalidQuota, Nanos};
use tollgate_fleet::Fleet;
use tollgate_store::{Clock, MemoryStore};

use super::check::Checker;
use super::commands::{self, CommandFlow};
use super::parse::{ArgumentSpans, ParseOutcome, RespCommand, parse};
use super::pipeline::{MAX_PENDING, Pipeline};
use super::reply_writer::ReplyWriter;
use super::session::RespSession;
use super::throttle::Throttle;
use crate::listen::counters::ListenerCounters;
use tollgate_service::Metrics;

/// Answers that have grown to this many bytes are sent before more is read: a short question may have a long answer.
pub(super) const MAX_UNSENT_REPLY_LEN: usize = 64 * 1_024;

/// The throttle commands over a store, and whoever decides on `TG.CHECK`.
///
/// ```
/// use tollgate_server::resp::{Pipeline, RespServer, NextAction};
/// use tollgate_store::MemoryStore;
///
/// let server = RespServer::new(MemoryStore::for_keys(1_000)?)?;
/// let mut session = server.session(None);
/// let mut input = *b"CL.THROTTLE alice 15 30 60\r\n";
/// let mut out = Vec::new();
/// let fed = server.feed(&mut session, &mut input, &mut Pipeline::new(), &mut out);
/// assert_eq!((fed.consumed, fed.then), (input.len(), NextAction::Read));
/// assert_eq!(out, b"*5\r\n:0\r\n:16\r\n:15\r\n:-1\r\n:2\r\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct RespServer<C> {
    pub(super) throttle: Throttle<C>,
    pub(super) checker: Option<Arc<dyn Checker>>,
    pub(super) password: Option<Box<[u8]>>,
    pub(super) commands: AtomicU64,
    pub(super) connections: AtomicU64,
    /// Bytes held for all connections together: beginnings of large commands, answers that were not taken.
    pub(super) buffered_bytes: AtomicUsize,
    sessions: AtomicU64,
    counters: ListenerCounters,
    pub(super) metrics: Arc<Metrics>,
}

/// What became of the bytes that a client sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeedOutcome {
    /// So many of them are done with. The rest is the beginning of a command, or waits for the answers to be sent.
    pub consumed: usize,
    /// What is to be done once the answers are sent.
    pub next: NextAction,
}

/// What is to be done next with a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextAction {
    /// Read more.
    Read,
    /// There are whole commands left: feed them again.
    FeedAgain,
    /// Decisions are awaited: [`drain`](Resp::drain) them, then feed what is left.
    Drain,
    /// End it.
    Close,
}

impl<C: Clock> RespServer<C> {
    /// A server that keeps the states of the throttle commands in this store, which is its own: their limits take the
    /// first three numbers.
    ///
    /// # Errors
    /// Never in practice: one constant quota is built.
    pub fn new(store: MemoryStore<C>) -> Result<Self, InvalidQuota> {
        Ok(Self {
            throttle: Throttle::new(store)?,
            checker: None,
            password: None,
            commands: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            buffered_bytes: AtomicUsize::new(0),
            sessions: AtomicU64::new(0),
            counters: ListenerCounters::default(),
            metrics: Arc::default(),
        })
    }

    /// The same server, with somebody to decide on `TG.CHECK`.
    #[must_use]
    pub fn with_checker(mut self, checker: Arc<dyn Checker>) -> Self {
        self.checker = Some(checker);
        self
    }

    /// The same server, which answers only those who give this password.
    #[must_use]
    pub fn with_password(mut self, password: &str) -> Self {
        self.password = Some(password.as_bytes().into());
        self
    }

    /// The same server, sharing the states of the throttle commands with a fleet. Keys may be a byte shorter then.
    #[must_use]
    pub fn with_fleet(mut self, fleet: Arc<Fleet>) -> Self {
        self.throttle.join_fleet(fleet);
        self
    }

    /// The same server, counting what it answers there.
    #[must_use]
    pub fn with_metrics(mut self, metrics: Arc<Metrics>) -> Self {
        self.metrics = metrics;
        self
    }

    /// Whether a fleet decides, so that decisions have to be awaited.
    #[must_use]
    pub const fn has_fleet(&self) -> bool {
        self.throttle.fleet().is_some()
    }

    /// The store of the throttle commands.
    pub const fn store(&self) -> &MemoryStore<C> {
        self.throttle.store()
    }

    /// A new connection, between these two addresses (theirs, ours) if there is a socket.
    #[must_use]
    pub fn session(&self, ends: Option<(SocketAddr, SocketAddr)>) -> RespSession {
        let id = self
            .sessions
            .fetch_add(1, Ordering::Relaxed)
            .saturating_add(1);
        RespSession::new(id, self.password.is_none(), ends)
    }

    /// What went wrong and was survived so far.
    #[must_use]
    pub const fn counters(&self) -> &ListenerCounters {
        &self.counters
    }

    /// How many keys were forgiven what they owed because there was no room for them.
    #[must_use]
    pub fn forgiven_keys(&self) -> u64 {
        self.throttle.store().usage().evictions
    }

    /// Carries out the commands that `input` begins with and appends their answers to `out`, until a command is not whole,
    /// the connection has to end, or the answers are long enough to be sent first.
    ///
    /// It never waits. Decisions that have to be awaited go into `pipeline`, and `out` has the answers before the first of them.
    pub fn feed<'s>(
        &'s self,
        session: &mut RespSession,
        input: &mut [u8],
        pipeline: &mut Pipeline<'s>,
        out: &mut Vec<u8>,
    ) -> FeedOutcome {
        let began = self.throttle.store().now();
        let most = if self.has_fleet() { MAX_PENDING } else { 1 };
        let mut words = ArgumentSpans::new();
        let (mut consumed, mut done) = (0_usize, 0);
        let then = loop {
            if out.len() >= MAX_UNSENT_REPLY_LEN {
                break NextAction::FeedAgain;
            }
            if pipeline.len() >= most {
                break NextAction::Drain;
            }
            let rest = input.get_mut(consumed..).unwrap_or_default();
            // Parsing rewrites a quoted inline command in place, so it is parsed only when it can be carried out.
            if !pipeline.is_empty() && rest.first().is_some_and(|byte| *byte != b'*') {
                break NextAction::Drain;
            }
            match parse(rest, &mut words) {
                ParseOutcome::Incomplete => break NextAction::Read,
                ParseOutcome::Empty(len) => consumed = consumed.saturating_add(len),
                ParseOutcome::Command(len) => {
                    let command = RespCommand::new(rest, &words);
                    let after = commands::run(self, session, &command, pipeline, out);
                    if after == CommandFlow::Drain {
                        break NextAction::Drain;
                    }
                    consumed = consumed.saturating_add(len);
                    done += 1;
                    if after == CommandFlow::Close {
                        break NextAction::Close;
                    }
                }
                ParseOutcome::Invalid(_) if !pipeline.is_empty() => break NextAction::Drain,
                ParseOutcome::Invalid(broken) => {
                    let mut reply = ReplyWriter::new(out, session.is_resp3);
                    reply.error(format_args!("ERR Protocol error: {broken}"));
                    break NextAction::Close;
                }
            }
        };
        self.commands.fetch_add(done, Ordering::Relaxed);
        if !pipeline.is_empty() {
            pipeline.set_started(began);
            let then = NextAction::Drain;
            return FeedOutcome {
                consumed,
                next: then,
            };
        }
        let span = || self.throttle.store().now().since(began);
        session.counts.flush(&self.metrics, span);
        FeedOutcome {
            consumed,
            next: then,
        }
    }

    /// Awaits the decisions that [`feed`](Self::feed) has begun, and appends their answers in the order of their commands.
    pub async fn drain<'s>(
        &'s self,
        session: &mut RespSession,
        pipeline: &mut Pipeline<'s>,
        out: &mut Vec<u8>,
    ) {
        let began = pipeline.finish(&mut session.counts, out).await;
        let now = || self.throttle.store().now();
        let span = || began.map_or(Nanos::ZERO, |began| now().since(began));
        session.counts.flush(&self.metrics, span);
    }
}

impl<C> fmt::Debug for RespServer<C> {
    /// The password is not shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resp")
            .field("commands", &self.commands)
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}
