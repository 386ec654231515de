//! One connection: reads the input, answers all of it, and sends the replies in one write.
//!
//! The buffers belong to the thread, not to the connection. An idle connection holds none, unless a command is incomplete or
//! replies could not be sent. So ten thousand idle connections need little memory, and busy ones allocate nothing. Must not
//! know: listeners, what commands mean.

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
    BufferPriority, BufferReservation, ConnectionProgress, LocalEndpoint, Peer, ShutdownOrTimeout,
    ShutdownSignal, Stream, UNCOUNTED_LEN, WakeReason, send_available,
};

/// The most bytes of one read, besides the start of an incomplete command.
const READ_LEN: usize = 64 * 1_024;
/// The same with a fleet, where connections keep their input while decisions are awaited.
const FLEET_READ_LEN: usize = 16 * 1_024;
/// A whole command with its headers, and one read after it.
const INPUT_LEN: usize = MAX_COMMAND_LEN + READ_LEN + 8 * 1_024;
/// A reply buffer with a larger capacity is shrunk after use.
const KEPT_OUTPUT_LEN: usize = 256 * 1_024;
/// The capacity that a connection may keep for the start of its next command.
const KEPT_INPUT_LEN: usize = UNCOUNTED_LEN;
/// How long, and how many bytes, are read and discarded after the last reply. If the socket were closed immediately, the
/// client's operating system could drop replies that the client has not read.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_LEN: u64 = 1 << 20;

/// A connection and its state.
pub(super) struct RespConnection<C> {
    stream: Stream,
    server: Arc<RespServer<C>>,
    session: RespSession,
    progress: ConnectionProgress,
    /// The start of an incomplete command, or whole commands while replies cannot be sent.
    pending: Vec<u8>,
    unsent: Vec<u8>,
    /// The most bytes of one read.
    read_len: usize,
    /// The reservation of the bytes that it buffers.
    reserved: BufferReservation,
    is_closing: bool,
    /// Whether a command was completed since the timer last expired. Bytes alone do not count, or one byte a minute would keep
    /// an incomplete command forever.
    is_busy: bool,
}

/// What a connection waits for.
enum WaitingFor {
    Input,
    Replies,
    SendCapacity,
    End,
}

/// Buffers of this thread, to be used without waiting.
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
        let budget = Arc::clone(server.buffers());
        let reserved = BufferReservation::new(budget, BufferPriority::Normal);
        server.connections.fetch_add(1, Ordering::Relaxed);
        Self {
            stream,
            server,
            session,
            progress: peer.progress.clone(),
            pending: Vec::new(),
            unsent: Vec::new(),
            read_len,
            reserved,
            is_closing: false,
            is_busy: false,
        }
    }

    /// Serves until the client disconnects, the idle timeout expires, or the server shuts down.
    pub(super) async fn run(mut self, limits: RespLimits, stopping: ShutdownSignal) {
        let server = Arc::clone(&self.server);
        let ended = self.serve(&server, limits, &stopping).await;
        if let Err(error) = ended {
            // The client disconnected.
            tracing::debug!(%error, "connection ended early");
        } else if self.is_closing {
            // The connection ends whether or not this succeeds.
            let _gone = timeout(LINGER, self.linger()).await.is_ok();
        } else {
            // Without a TLS close_notify the client would see a truncated stream.
            let _sent = timeout(LINGER, self.stream.shutdown()).await.is_ok();
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
        // A timer that is restarted only when it expires is cheaper than one per read. A connection is idle if no command was
        // completed between two expiries.
        let (stopped, timer) = (pin!(stopping.wait()), pin!(sleep(idle)));
        let mut wake_events = ShutdownOrTimeout::new(stopping, stopped, timer);
        let mut time = idle;
        loop {
            // A client that makes us buffer a large command gets less time to complete it.
            let budget = self.reserved.budget();
            let (was_idle, is_counted) = (time == idle, self.reserved.is_counted());
            if is_counted == was_idle {
                time = match is_counted {
                    true => budget.timeout(limits.command_timeout).min(idle),
                    false => idle,
                };
                wake_events.wake_at(Instant::now() + time);
            }
            let mut is_busy = std::mem::take(&mut self.is_busy);
            let next = |context: &mut Context<'_>| self.poll_input(context, server, &mut pipeline);
            let next = next_input(&mut wake_events, time, &mut is_busy, next).await?;
            self.is_busy |= is_busy;
            if self.is_busy && self.session.is_authenticated {
                self.progress.mark_established();
            }
            let mut next = next.unwrap_or(WaitingFor::End);
            while let WaitingFor::SendCapacity | WaitingFor::Replies = next {
                if !self.reserve() {
                    return Ok(());
                }
                if let WaitingFor::Replies = next {
                    let (session, unsent) = (&mut self.session, &mut self.unsent);
                    server.drain(session, &mut pipeline, unsent).await;
                } else {
                    // Read no more commands until the client has read its replies.
                    poll_fn(|context| self.poll_send(context)).await?;
                }
                next = poll_fn(|context| Poll::Ready(self.resume(context, server, &mut pipeline)))
                    .await?;
            }
            if let WaitingFor::End = next {
                return Ok(());
            }
            if !self.reserve() {
                self.close_over_buffer_limit();
                return Ok(());
            }
            if stopping.is_triggered() {
                // All input that had arrived is answered. Busy connections have to end too.
                return Ok(());
            }
        }
    }

    /// Reads and answers the input that has arrived.
    fn poll_input<'s>(
        &mut self,
        context: &mut Context<'_>,
        server: &'s RespServer<C>,
        pipeline: &mut Pipeline<'s>,
    ) -> Poll<io::Result<WaitingFor>> {
        with_thread_buffers(|buffers| {
            let kept = self.pending.len();
            let free = buffers.input.get_mut(kept..).unwrap_or_default();
            let most = self.read_len.min(free.len());
            let mut free = ReadBuf::new(free.get_mut(..most).unwrap_or_default());
            ready!(Pin::new(&mut self.stream).poll_read(context, &mut free))?;
            let read = free.filled().len();
            if read == 0 {
                return Poll::Ready(Ok(WaitingFor::End));
            }
            let filled = self.restore_pending(buffers).saturating_add(read);
            Poll::Ready(self.process_input(context, (server, pipeline), buffers, filled))
        })
    }

    /// Sends the replies that could not be sent before.
    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let sent = send_available(&mut self.stream, context, &self.unsent)?;
        if !sent.is_flushed {
            self.unsent.drain(..sent.sent);
            return Poll::Pending;
        }
        self.unsent = Vec::new();
        Poll::Ready(Ok(()))
    }

    /// Answers the input that waited for send capacity or for decisions.
    fn resume<'s>(
        &mut self,
        context: &mut Context<'_>,
        server: &'s RespServer<C>,
        pipeline: &mut Pipeline<'s>,
    ) -> io::Result<WaitingFor> {
        if self.is_closing {
            return Ok(WaitingFor::End);
        }
        with_thread_buffers(|buffers| {
            let filled = self.restore_pending(buffers);
            self.process_input(context, (server, pipeline), buffers, filled)
        })
    }

    /// Copies the kept bytes to the start of the input buffer and returns their number.
    fn restore_pending(&mut self, buffers: &mut ThreadBuffers) -> usize {
        let kept = self.pending.len();
        if let Some(incomplete) = buffers.input.get_mut(..kept) {
            incomplete.copy_from_slice(&self.pending);
        }
        self.pending.clear();
        kept
    }

    /// Answers the first `filled` bytes of the input, after replies that were not sent yet.
    fn process_input<'s>(
        &mut self,
        context: &mut Context<'_>,
        (server, pipeline): (&'s RespServer<C>, &mut Pipeline<'s>),
        buffers: &mut ThreadBuffers,
        filled: usize,
    ) -> io::Result<WaitingFor> {
        let ThreadBuffers { input, output } = buffers;
        output.clear();
        output.append(&mut self.unsent);
        let mut at = 0_usize;
        let next = loop {
            let rest = input.get_mut(at..filled).unwrap_or_default();
            let fed = server.feed(&mut self.session, rest, pipeline, output);
            at = at.saturating_add(fed.consumed);
            self.is_closing = fed.next == NextAction::Close;
            self.is_busy |= fed.consumed > 0;
            let next = match fed.next {
                NextAction::FeedAgain => None,
                NextAction::Read => Some(WaitingFor::Input),
                NextAction::Close => Some(WaitingFor::End),
                NextAction::Drain => {
                    // Without a fleet the decisions are ready at the first poll, and the input stays in place.
                    let is_drained = {
                        let drain = pin!(server.drain(&mut self.session, pipeline, output));
                        drain.poll(context).is_ready()
                    };
                    if is_drained {
                        continue;
                    }
                    // Send these together with the awaited replies, in one write.
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
        self.keep_incomplete(input.get(at..filled).unwrap_or_default());
        output.clear();
        output.shrink_to(KEPT_OUTPUT_LEN);
        Ok(next)
    }

    /// Keeps the start of an incomplete command.
    fn keep_incomplete(&mut self, incomplete: &[u8]) {
        self.pending.reserve_exact(incomplete.len());
        self.pending.extend_from_slice(incomplete);
        if self.pending.is_empty() && self.pending.capacity() > KEPT_INPUT_LEN {
            self.pending = Vec::new();
        }
    }

    /// Reserves what this connection buffers. Returns false if all connections together exceed the budget; then the connection
    /// has to be closed.
    fn reserve(&mut self) -> bool {
        let holds = self.pending.capacity().saturating_add(self.unsent.len());
        let is_within = self.reserved.resize(holds).is_ok();
        if !is_within {
            let counters = self.server.counters();
            self.reserved.budget().record_refusal(counters);
        }
        is_within
    }

    /// Closes the connection because all connections together buffer too much.
    fn close_over_buffer_limit(&mut self) {
        (self.pending, self.unsent) = (Vec::new(), Vec::new());
        // The reply is dropped if the send buffer has no room for it.
        let _sent = self
            .stream
            .try_send(b"-ERR too many unfinished commands\r\n");
        self.is_closing = true;
    }

    /// Closes the write side and waits until the client has seen it.
    async fn linger(&mut self) -> io::Result<u64> {
        self.stream.shutdown().await?;
        let rest = &mut (&mut self.stream).take(LINGER_LEN);
        tokio::io::copy(rest, &mut tokio::io::sink()).await
    }
}

impl<C> Drop for RespConnection<C> {
    fn drop(&mut self) {
        self.server.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Waits for input. Returns `None` if the server shuts down first, or if no command was completed since the timer last expired.
async fn next_input<T, F: Future<Output = ()>>(
    wake_events: &mut ShutdownOrTimeout<'_, F>,
    idle: Duration,
    is_busy: &mut bool,
    mut poll: impl FnMut(&mut Context<'_>) -> Poll<io::Result<T>>,
) -> io::Result<Option<T>> {
    poll_fn(|context| {
        let woken = wake_events.poll_wake(context);
        // Input that has arrived is answered before a shutdown or timeout ends the connection.
        if let Poll::Ready(next) = poll(context) {
            return Poll::Ready(next.map(Some));
        }
        match woken {
            None => Poll::Pending,
            Some(WakeReason::Timeout) if std::mem::take(is_busy) => {
                // This is tokio's clock, which tests can pause. No decision depends on it.
                wake_events.wake_at(Instant::now() + idle);
                let _sent = wake_events.poll_wake(context);
                Poll::Pending
            }
            Some(WakeReason::Timeout | WakeReason::Shutdown) => Poll::Ready(Ok(None)),
        }
    })
    .await
}

/// Runs `work` with this thread's buffers. `work` must not wait.
fn with_thread_buffers<T>(work: impl FnOnce(&mut ThreadBuffers) -> T) -> T {
    thread_local! {
        static OWN: Cell<Option<Box<ThreadBuffers>>> = const { Cell::new(None) };
    }
    let mut buffers = OWN.take().unwrap_or_else(|| {
        Box::new(ThreadBuffers {
            input: vec![0; INPUT_LEN].into_boxed_slice(),
            output: Vec::with_capacity(READ_LEN),
        })
    });
    let done = work(&mut buffers);
    OWN.set(Some(buffers));
    done
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listen::{Listener, ShutdownTrigger};
    use tokio::net::{TcpListener, TcpStream};
    use tollgate_store::MemoryStore;

    /// Ten thousand idle connections have to fit into 100 MB, which is 10 kB each. The runtime adds little to the task.
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
