//! [`RespServer`]: answers all input of a client in one batch of replies, without sockets.
//!
//! Must not know: sockets.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_core::{InvalidQuota, Nanos};
use tollgate_fleet::Fleet;
use tollgate_store::{Clock, MemoryStore};

use super::check::Checker;
use super::commands::{self, CommandFlow};
use super::parse::{ParseOutcome, RespCommand};
use super::parsed_commands::{ParsedCommands, with_parsed_commands};
use super::pipeline::{MAX_PENDING, Pipeline};
use super::reply_writer::ReplyWriter;
use super::session::RespSession;
use super::throttle::Throttle;
use crate::listen::counters::ListenerCounters;
use crate::listen::{AuthFailureThrottle, BufferBudget};
use tollgate_service::Metrics;

/// Replies of this many bytes are sent before more commands run: a short command may have a long reply.
pub(super) const MAX_UNSENT_REPLY_LEN: usize = 64 * 1_024;

/// The throttle commands over a store, and a [`Checker`] for `TG.CHECK`.
///
/// ```
/// use tollgate_server::resp::{Pipeline, RespServer, NextAction};
/// use tollgate_store::MemoryStore;
///
/// let server = RespServer::new(MemoryStore::for_keys(1_000)?)?;
/// let mut session = server.session(None);
/// let mut input = *b"CL.THROTTLE alice 15 30 60\r\n";
/// let mut out = Vec::new();
/// let outcome = server.feed(&mut session, &mut input, &mut Pipeline::new(), &mut out);
/// assert_eq!((outcome.consumed, outcome.next), (input.len(), NextAction::Read));
/// assert_eq!(out, b"*5\r\n:0\r\n:16\r\n:15\r\n:-1\r\n:2\r\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct RespServer<C> {
    pub(super) throttle: Throttle<C>,
    pub(super) checker: Option<Arc<dyn Checker>>,
    pub(super) password: Option<Box<[u8]>>,
    pub(super) auth_failures: AuthFailureThrottle,
    pub(super) commands: AtomicU64,
    pub(super) connections: AtomicU64,
    /// Bytes buffered for all connections together: incomplete large commands and unsent replies.
    buffers: Arc<BufferBudget>,
    sessions: AtomicU64,
    counters: ListenerCounters,
    pub(super) metrics: Arc<Metrics>,
}

/// The result of [`RespServer::feed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeedOutcome {
    /// How many bytes of the input were consumed. The others are an incomplete command, or wait for replies to be sent.
    pub consumed: usize,
    /// What to do once the replies are sent.
    pub next: NextAction,
}

/// What to do next with a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextAction {
    /// Read more input.
    Read,
    /// The input has more whole commands: feed it again.
    FeedAgain,
    /// Decisions are awaited: [`drain`](RespServer::drain) them, then feed the input that is left.
    Drain,
    /// Close the connection.
    Close,
}

impl<C: Clock> RespServer<C> {
    /// A server that keeps the state of the throttle commands in this store, which must not be shared: their limits take its
    /// first three limit ids.
    ///
    /// Never in practice: it builds constant quotas.
    pub fn new(store: MemoryStore<C>) -> Result<Self, InvalidQuota> {
        Ok(Self {
            throttle: Throttle::new(store)?,
            checker: None,
            password: None,
            auth_failures: AuthFailureThrottle::new("resp")?,
            commands: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            buffers: Arc::default(),
            sessions: AtomicU64::new(0),
            counters: ListenerCounters::default(),
            metrics: Arc::default(),
        })
    }

    /// Sets the checker of `TG.CHECK` and `TG.ACQUIRE`.
    #[must_use]
    pub fn with_checker(mut self, checker: Arc<dyn Checker>) -> Self {
        self.checker = Some(checker);
        self
    }

    /// Requires this password.
    #[must_use]
    pub fn with_password(mut self, password: &str) -> Self {
        self.password = Some(password.as_bytes().into());
        self
    }

    /// Shares the state of the throttle commands with a fleet. The longest key is then one byte shorter.
    #[must_use]
    pub fn with_fleet(mut self, fleet: Arc<Fleet>) -> Self {
        self.throttle.join_fleet(fleet);
        self
    }

    /// Counts replies in these metrics.
    #[must_use]
    pub fn with_metrics(mut self, metrics: Arc<Metrics>) -> Self {
        self.metrics = metrics;
        self
    }

    /// Shares this buffer budget with other listeners.
    #[must_use]
    pub fn with_buffers(mut self, buffers: Arc<BufferBudget>) -> Self {
        self.buffers = buffers;
        self
    }

    /// The bytes buffered for clients.
    #[must_use]
    pub const fn buffers(&self) -> &Arc<BufferBudget> {
        &self.buffers
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

    /// Starts a session, with the addresses of the client and the server if there is a socket.
    #[must_use]
    pub fn session(&self, ends: Option<(SocketAddr, SocketAddr)>) -> RespSession {
        let id = self
            .sessions
            .fetch_add(1, Ordering::Relaxed)
            .saturating_add(1);
        RespSession::new(id, self.password.is_none(), ends)
    }

    /// The counters of the listener.
    #[must_use]
    pub const fn counters(&self) -> &ListenerCounters {
        &self.counters
    }

    /// How many keys lost their debt because the store evicted them for lack of room.
    #[must_use]
    pub fn forgiven_keys(&self) -> u64 {
        self.throttle.store().usage().evictions
    }

    /// Runs the commands at the start of `input` and appends their replies to `out`. It stops at an incomplete command, when
    /// the connection has to be closed, or when the replies are long enough to be sent first.
    ///
    /// It never waits. Decisions that have to be awaited go into `pipeline`; `out` gets the replies before the first of them.
    pub fn feed<'s>(
        &'s self,
        session: &mut RespSession,
        input: &mut [u8],
        pipeline: &mut Pipeline<'s>,
        out: &mut Vec<u8>,
    ) -> FeedOutcome {
        let started_at = self.throttle.store().now();
        let (mut consumed, mut completed) = (0_usize, 0);
        let next = with_parsed_commands(|parsed| {
            self.run_commands(
                (session, pipeline),
                (input, parsed),
                (&mut consumed, &mut completed),
                out,
            )
        });
        self.commands.fetch_add(completed, Ordering::Relaxed);
        if !pipeline.is_empty() {
            pipeline.set_started(started_at);
            let next = NextAction::Drain;
            return FeedOutcome { consumed, next };
        }
        let span = || self.throttle.store().now().since(started_at);
        session.counts.flush(&self.metrics, span);
        FeedOutcome { consumed, next }
    }

    /// Runs commands until [`feed`](Self::feed) has to return. Adds the bytes and the number of completed commands.
    #[inline]
    fn run_commands<'s>(
        &'s self,
        (session, pipeline): (&mut RespSession, &mut Pipeline<'s>),
        (input, parsed): (&mut [u8], &mut ParsedCommands),
        (consumed, completed): (&mut usize, &mut u64),
        out: &mut Vec<u8>,
    ) -> NextAction {
        let max_pending = if self.has_fleet() { MAX_PENDING } else { 1 };
        loop {
            if out.len() >= MAX_UNSENT_REPLY_LEN {
                return NextAction::FeedAgain;
            }
            if pipeline.len() >= max_pending {
                return NextAction::Drain;
            }
            let rest = input.get_mut(*consumed..).unwrap_or_default();
            // Parsing rewrites a quoted inline command in place, so it is parsed only when it can be run.
            if !pipeline.is_empty() && rest.first().is_some_and(|byte| *byte != b'*') {
                return NextAction::Drain;
            }
            let (outcome, spans) = parsed.take(rest, |command| commands::prefetch(self, command));
            match outcome {
                ParseOutcome::Incomplete => return NextAction::Read,
                ParseOutcome::Empty(len) => *consumed = consumed.saturating_add(len),
                ParseOutcome::Command(len) => {
                    let command = RespCommand::new(rest, spans);
                    let after = commands::run(self, session, &command, pipeline, out);
                    if after == CommandFlow::Drain {
                        return NextAction::Drain;
                    }
                    *consumed = consumed.saturating_add(len);
                    *completed = completed.saturating_add(1);
                    if after == CommandFlow::Close {
                        return NextAction::Close;
                    }
                }
                ParseOutcome::Invalid(_) if !pipeline.is_empty() => return NextAction::Drain,
                ParseOutcome::Invalid(broken) => {
                    let mut reply = ReplyWriter::new(out, session.is_resp3);
                    reply.error(format_args!("ERR Protocol error: {broken}"));
                    return NextAction::Close;
                }
            }
        }
    }

    /// Awaits the decisions that [`feed`](Self::feed) has started and appends their replies in the order of their commands.
    /// After several wrong passwords the reply to the next one takes a second, for which it needs the timer of tokio.
    pub async fn drain<'s>(
        &'s self,
        session: &mut RespSession,
        pipeline: &mut Pipeline<'s>,
        out: &mut Vec<u8>,
    ) {
        let started_at = pipeline.finish(&mut session.counts, out).await;
        let now = || self.throttle.store().now();
        let span = || started_at.map_or(Nanos::ZERO, |started_at| now().since(started_at));
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
