//! One connection: read what is there, answer all of it, send the answers in one write.
//!
//! The buffers belong to the thread, not to the connection: a connection that waits holds none, unless a command has
//! arrived in part or answers could not be sent at once. So ten thousand idle connections cost little, and busy ones
//! allocate nothing. Must not know: listeners, what commands mean.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead as _, AsyncReadExt as _, AsyncWriteExt as _, ReadBuf};
use tokio::time::{Instant, sleep, timeout};
use tollgate_store::Clock;

use super::parse::MAX_COMMAND_LEN;
use super::pipeline::Pipeline;
use super::serve::RespLimits;
use super::server::{NextAction, RespServer};
use super::session::RespSession;
use crate::listen::{
    LocalEndpoint, Peer, ShutdownOrTimeout, ShutdownSignal, Stream, WakeReason, send_available,
};

/// What is read at once at most, beside the beginning of a command that has arrived before.
const READ_LEN: usize = 64 * 1_024;
/// The same where a fleet decides: connections keep what they have read while decisions are awaited.
const FLEET_READ_LEN: usize = 16 * 1_024;
/// A whole command with its headers, and a read after it.
const INPUT_LEN: usize = MAX_COMMAND_LEN + READ_LEN + 8 * 1_024;
/// A buffer for answers that has grown beyond this is given back when it is empty.
const KEPT_OUTPUT_LEN: usize = 256 * 1_024;
/// What a connection may keep for the beginning of its next command.
const KEPT_INPUT_LEN: usize = 4 * 1_024;
/// How long, and how much, is read and thrown away after the last answer: closing at once would make the client's
/// operating system drop an answer that the client has not read yet.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_LEN: u64 = 1 << 20;

/// A connection and what is under way on it.
pub(super) struct RespConnection<C> {
    stream: Stream,
    server: Arc<RespServer<C>>,
    session: RespSession,
    /// The beginning of a command; or whole ones, while answers wait to be sent.
    pending: Vec<u8>,
    unsent: Vec<u8>,
    /// What is read at once at most.
    read_len: usize,
    /// What it has on the server's account of bytes held for connections.
    held: usize,
    is_ending: bool,
    /// Whether a command was carried out since this was last looked at. Bytes alone do not count: one byte a minute would
    /// keep the beginning of a command for ever.
    is_busy: bool,
}

/// What a connection has to wait for.
enum WaitingFor {
    Input,
    Replies,
    SendCapacity,
    End,
}

/// Buffers that whoever works on this thread may use until it waits.
struct ThreadBuffers {
    input: Box<[u8]>,
    output: Vec<u8>,
}

impl<C: Clock> RespConnection<C> {
    pub(super) fn new(stream: Stream, peer: &Peer, server: Arc<RespServer<C>>) -> Self {
        let ends = match (peer.address, &peer.local) {
            (Some(theirs), LocalEndpoint::Tcp(ours) | LocalEndpoint::Tls(ours)) => {
                Some((theirs, *ours))
            }
            _ => None,
        };
        let session = server.session(ends);
        let read_len = match server.has_fleet() {
            true => FLEET_READ_LEN,
            false => READ_LEN,
        };
        server.connections.fetch_add(1, Ordering::Relaxed);
        Self {
            stream,
            server,
            session,
            pending: Vec::new(),
            unsent: Vec::new(),
            read_len,
            held: 0,
            is_ending: false,
            is_busy: false,
        }
    }

    /// Serves until the client leaves, is idle for too long, or the server stops.
    pub(super) async fn run(mut self, limits: RespLimits, stopping: ShutdownSignal) {
        let server = Arc::clone(&self.server);
        let ended = self.serve(&server, limits, &stopping).await;
        if let Err(error) = ended {
            // The client's doing: it left without a word.
            tracing::debug!(%error, "a connection ended early");
        } else if self.is_ending {
            // Whatever goes wrong now, the connection ends.
            let _gone = timeout(LINGER, self.linger()).await.is_ok();
        } else {
            // Inside TLS a connection that ends without a word looks like one that was cut.
            let _told = timeout(LINGER, self.stream.shutdown()).await.is_ok();
        }
    }

    async fn serve(
        &mut self,
        server: &RespServer<C>,
        limits: RespLimits,
        stopping: &ShutdownSignal,
    ) -> io::Result<()> {
        let idle = limits.idle_timeout;
        let mut pipeline = Pipeline::new();
        // One timer that is looked at once in a while is cheaper than one for every read: a connection is idle if
        // nothing was done between two looks.
        let (stopped, timer) = (pin!(stopping.wait()), pin!(sleep(idle)));
        let mut vigil = ShutdownOrTimeout::new(stopping, stopped, timer);
        loop {
            let mut is_busy = std::mem::take(&mut self.is_busy);
            let next = |context: &mut Context<'_>| self.poll_input(context, server, &mut pipeline);
            let next = next_input(&mut vigil, idle, &mut is_busy, next).await?;
            self.is_busy |= is_busy;
            let mut next = next.unwrap_or(WaitingFor::End);
            while let WaitingFor::SendCapacity | WaitingFor::Replies = next {
                if !self.is_held_within(limits.max_buffered_bytes) {
                    return Ok(());
                }
                if let WaitingFor::Replies = next {
                    let (session, unsent) = (&mut self.session, &mut self.unsent);
                    server.drain(session, &mut pipeline, unsent).await;
                } else {
                    // A client that does not read answers gets no more of them.
                    poll_fn(|context| self.poll_send(context)).await?;
                }
                next = poll_fn(|context| Poll::Ready(self.go_on(context, server, &mut pipeline)))
                    .await?;
            }
            if let WaitingFor::End = next {
                return Ok(());
            }
            if !self.is_held_within(limits.max_buffered_bytes) {
                self.refuse_to_hold();
                return Ok(());
            }
            if stopping.is_triggered() {
                // What had arrived is answered. Busy connections have to end too.
                return Ok(());
            }
        }
    }

    /// Reads what has arrived and answers it.
    fn poll_input<'s>(
        &mut self,
        context: &mut Context<'_>,
        server: &'s RespServer<C>,
        pipeline: &mut Pipeline<'s>,
    ) -> Poll<io::Result<WaitingFor>> {
        with_scratch(|scratch| {
            let kept = self.pending.len();
            let free = scratch.input.get_mut(kept..).unwrap_or_default();
            let most = self.read_len.min(free.len());
            let mut free = ReadBuf::new(free.get_mut(..most).unwrap_or_default());
            ready!(Pin::new(&mut self.stream).poll_read(context, &mut free))?;
            let read = free.filled().len();
            if read == 0 {
                return Poll::Ready(Ok(WaitingFor::End));
            }
            let filled = self.take_pending(scratch).saturating_add(read);
            Poll::Ready(self.answer(context, (server, pipeline), scratch, filled))
        })
    }

    /// Sends what could not be sent before.
    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let sent = send_available(&mut self.stream, context, &self.unsent)?;
        if !sent.is_flushed {
            self.unsent.drain(..sent.sent);
            return Poll::Pending;
        }
        self.unsent = Vec::new();
        Poll::Ready(Ok(()))
    }

    /// Answers what has been waiting until there was room, or until decisions were known.
    fn go_on<'s>(
        &mut self,
        context: &mut Context<'_>,
        server: &'s RespServer<C>,
        pipeline: &mut Pipeline<'s>,
    ) -> io::Result<WaitingFor> {
        if self.is_ending {
            return Ok(WaitingFor::End);
        }
        with_scratch(|scratch| {
            let filled = self.take_pending(scratch);
            self.answer(context, (server, pipeline), scratch, filled)
        })
    }

    /// Puts what was kept at the beginning of the input. How much that is.
    fn take_pending(&mut self, scratch: &mut ThreadBuffers) -> usize {
        let kept = self.pending.len();
        if let Some(begun) = scratch.input.get_mut(..kept) {
            begun.copy_from_slice(&self.pending);
        }
        self.pending.clear();
        kept
    }

    /// Answers the first `filled` bytes of the input, behind answers that were not sent yet.
    fn answer<'s>(
        &mut self,
        context: &mut Context<'_>,
        (server, pipeline): (&'s RespServer<C>, &mut Pipeline<'s>),
        scratch: &mut ThreadBuffers,
        filled: usize,
    ) -> io::Result<WaitingFor> {
        let ThreadBuffers { input, output } = scratch;
        output.clear();
        output.append(&mut self.unsent);
        let mut at = 0_usize;
        let next = loop {
            let rest = input.get_mut(at..filled).unwrap_or_default();
            let fed = server.feed(&mut self.session, rest, pipeline, output);
            at = at.saturating_add(fed.consumed);
            self.is_ending = fed.next == NextAction::Close;
            self.is_busy |= fed.consumed > 0;
            let next = match fed.next {
                NextAction::FeedAgain => None,
                NextAction::Read => Some(WaitingFor::Input),
                NextAction::Close => Some(WaitingFor::End),
                NextAction::Drain => {
                    // Over memory everything is decided at the first poll, and the input stays where it is.
                    let is_drained = {
                        let drain = pin!(server.drain(&mut self.session, pipeline, output));
                        drain.poll(context).is_ready()
                    };
                    if is_drained {
                        continue;
                    }
                    // Sent with the answers that are awaited, in one write.
                    self.unsent.extend_from_slice(output);
                    break WaitingFor::Replies;
                }
            };
            let sent = send_available(&mut self.stream, context, output)?;
            if !sent.is_flushed {
                self.unsent = output.get(sent.sent..).unwrap_or_default().to_vec();
                break WaitingFor::SendCapacity;
            }
            output.clear();
            if let Some(next) = next {
                break next;
            }
        };
        self.keep(input.get(at..filled).unwrap_or_default());
        output.clear();
        output.shrink_to(KEPT_OUTPUT_LEN);
        Ok(next)
    }

    /// Keeps the beginning of a command until the rest arrives.
    fn keep(&mut self, begun: &[u8]) {
        self.pending.extend_from_slice(begun);
        if self.pending.is_empty() && self.pending.capacity() > KEPT_INPUT_LEN {
            self.pending = Vec::new();
        }
    }

    /// Puts on the server's account what this connection holds beyond a little, and says whether all of them together hold
    /// no more than they may.
    fn is_held_within(&mut self, most: usize) -> bool {
        let holds = self.pending.len().saturating_add(self.unsent.len());
        let holds = if holds > KEPT_INPUT_LEN { holds } else { 0 };
        if holds == 0 && self.held == 0 {
            return true;
        }
        let account = &self.server.buffered_bytes;
        let before = account.fetch_add(holds, Ordering::Relaxed);
        account.fetch_sub(self.held, Ordering::Relaxed);
        let all = before.saturating_add(holds).saturating_sub(self.held);
        self.held = holds;
        // Who holds nothing is not to blame.
        holds == 0 || all <= most
    }

    /// Ends it because all connections together hold too much.
    fn refuse_to_hold(&mut self) {
        // If there is no room for even this, it is not said.
        let _said = self
            .stream
            .try_send(b"-ERR too many unfinished commands\r\n");
        self.is_ending = true;
    }

    /// Says that no more will be said, and waits until the client has seen it.
    async fn linger(&mut self) -> io::Result<u64> {
        self.stream.shutdown().await?;
        let rest = &mut (&mut self.stream).take(LINGER_LEN);
        tokio::io::copy(rest, &mut tokio::io::sink()).await
    }
}

impl<C> Drop for RespConnection<C> {
    fn drop(&mut self) {
        self.server.connections.fetch_sub(1, Ordering::Relaxed);
        self.server
            .buffered_bytes
            .fetch_sub(self.held, Ordering::Relaxed);
    }
}

/// What comes of a poll for input; `None` if the server stops before it is ready, or if nothing was done since the timer
/// was looked at last.
async fn next_input<T, F: Future<Output = ()>>(
    vigil: &mut ShutdownOrTimeout<'_, F>,
    idle: Duration,
    is_busy: &mut bool,
    mut poll: impl FnMut(&mut Context<'_>) -> Poll<io::Result<T>>,
) -> io::Result<Option<T>> {
    poll_fn(|context| {
        let woken = vigil.poll_wake(context);
        // Whatever has happened, what has arrived is answered first.
        if let Poll::Ready(next) = poll(context) {
            return Poll::Ready(next.map(Some));
        }
        match woken {
            None => Poll::Pending,
            Some(WakeReason::Timeout) if std::mem::take(is_busy) => {
                // The runtime's own clock: it decides nothing, and tests can move it.
                vigil.wake_at(Instant::now() + idle);
                let _told = vigil.poll_wake(context);
                Poll::Pending
            }
            Some(WakeReason::Timeout | WakeReason::Shutdown) => Poll::Ready(Ok(None)),
        }
    })
    .await
}

/// This thread's buffers. Nothing waits while it has them.
fn with_scratch<T>(work: impl FnOnce(&mut ThreadBuffers) -> T) -> T {
    thread_local! {
        static OWN: Cell<Option<Box<ThreadBuffers>>> = const { Cell::new(None) };
    }
    let mut scratch = OWN.take().unwrap_or_else(|| {
        Box::new(ThreadBuffers {
            input: vec![0; INPUT_LEN].into_boxed_slice(),
            output: Vec::with_capacity(READ_LEN),
        })
    });
    let done = work(&mut scratch);
    OWN.set(Some(scratch));
    done
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listen::{Listener, ShutdownTrigger};
    use tokio::net::{TcpListener, TcpStream};
    use tollgate_store::MemoryStore;

    /// Ten thousand idle connections are to take less than 100 MB, which is 10 kB each. The runtime adds little to the
    /// task itself.
    #[tokio::test]
    async fn an_idle_connection_is_small_and_holds_no_buffers() {
        let server = Arc::new(RespServer::new(MemoryStore::for_keys(1).unwrap()).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap());
        let listener = Listener::from(listener);
        let (client, accepted) = tokio::join!(client, listener.accept(Duration::from_secs(1)));
        let (stream, peer) = accepted.unwrap();
        let connection = RespConnection::new(stream, &peer, server);
        assert_eq!(
            connection.pending.capacity() + connection.unsent.capacity(),
            0
        );
        let (_stop, stopping) = ShutdownTrigger::new();
        let task = connection.run(RespLimits::default(), stopping);
        let size = size_of_val(&task);
        assert!(size <= 4_096, "{size} bytes");
        drop(client);
    }
}
