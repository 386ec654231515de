//! Writes the calls of a connection and reads their replies, in one task.
//!
//! It waits one turn of the scheduler before it writes. So calls that tasks make in the same turn go out in one write, and
//! their replies come back in one read. Must not know: what is in a call, who waits for a reply.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::call_queue::{CallQueue, ConnectionFailure};
use crate::wire::{InvalidFrame, MAX_REPLY, parse_reply};

/// The room for what one read returns. It grows for a longer reply.
const READ_ROOM: usize = 16 << 10;

/// The task of one connection.
pub(super) struct ConnectionDriver<S> {
    stream: S,
    calls: Arc<Mutex<CallQueue>>,
    outgoing: Vec<u8>,
    written: usize,
    received: ReceiveBuffer,
}

impl<S: AsyncRead + AsyncWrite + Unpin> ConnectionDriver<S> {
    pub(super) fn new(stream: S, calls: Arc<Mutex<CallQueue>>) -> Self {
        Self {
            stream,
            calls,
            outgoing: Vec::new(),
            written: 0,
            received: ReceiveBuffer::default(),
        }
    }

    /// Runs until the connection fails. All calls then fail too.
    pub(super) async fn run(mut self) {
        loop {
            let waited = poll_fn(|context| self.poll_unsent(context)).await;
            // Tasks that are about to call get their turn first.
            tokio::task::yield_now().await;
            let written = match waited {
                Ok(()) => poll_fn(|context| self.poll_write(context)).await,
                Err(failure) => Err(failure),
            };
            if let Err(failure) = written {
                lock(&self.calls).fail(failure);
                return;
            }
        }
    }

    /// Reads replies until there is something to write.
    fn poll_unsent(&mut self, context: &mut Context<'_>) -> Poll<Result<(), ConnectionFailure>> {
        self.read_replies(context)?;
        lock(&self.calls).poll_unsent(context).map(Ok)
    }

    /// Writes everything, and reads meanwhile: a server that cannot write its replies does not read calls.
    fn poll_write(&mut self, context: &mut Context<'_>) -> Poll<Result<(), ConnectionFailure>> {
        self.read_replies(context)?;
        if self.outgoing.is_empty() {
            lock(&self.calls).take_unsent(&mut self.outgoing);
        }
        while let Some(rest @ [_, ..]) = self.outgoing.get(self.written..) {
            let len = ready!(Pin::new(&mut self.stream).poll_write(context, rest))?;
            if len == 0 {
                return Poll::Ready(Err(ConnectionFailure::Io(io::ErrorKind::WriteZero)));
            }
            self.written = self.written.saturating_add(len);
        }
        ready!(Pin::new(&mut self.stream).poll_flush(context))?;
        self.outgoing.clear();
        self.written = 0;
        Poll::Ready(Ok(()))
    }

    /// Hands over the replies that have arrived.
    fn read_replies(&mut self, context: &mut Context<'_>) -> Result<(), ConnectionFailure> {
        while self.received.poll_read(&mut self.stream, context)? {
            self.received.take_replies(&self.calls)?;
        }
        Ok(())
    }
}

impl<S> Drop for ConnectionDriver<S> {
    fn drop(&mut self) {
        // Also if the task was ended, so that nobody waits for a reply.
        let ended = ConnectionFailure::Io(io::ErrorKind::ConnectionAborted);
        lock(&self.calls).fail(ended);
    }
}

pub(super) fn lock(calls: &Mutex<CallQueue>) -> MutexGuard<'_, CallQueue> {
    // Code under the lock cannot leave it half changed.
    calls.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What was read and not parsed yet.
#[derive(Debug, Default)]
struct ReceiveBuffer {
    bytes: Vec<u8>,
    filled: usize,
}

impl ReceiveBuffer {
    /// Reads once. Returns whether anything arrived.
    fn poll_read<S: AsyncRead + Unpin>(
        &mut self,
        stream: &mut S,
        context: &mut Context<'_>,
    ) -> Result<bool, ConnectionFailure> {
        if self.filled >= self.bytes.len() {
            // The parser refuses a reply before it is twice as long as the longest.
            let room = self.bytes.len().saturating_mul(2).max(READ_ROOM);
            self.bytes.resize(room.min(MAX_REPLY.saturating_mul(2)), 0);
        }
        let room = self.bytes.get_mut(self.filled..).unwrap_or_default();
        let mut room = ReadBuf::new(room);
        match Pin::new(stream).poll_read(context, &mut room) {
            Poll::Pending => Ok(false),
            Poll::Ready(Err(error)) => Err(error.into()),
            Poll::Ready(Ok(())) => match room.filled().len() {
                0 => Err(ConnectionFailure::Io(io::ErrorKind::UnexpectedEof)),
                len => {
                    self.filled = self.filled.saturating_add(len);
                    Ok(true)
                }
            },
        }
    }

    fn take_replies(&mut self, calls: &Mutex<CallQueue>) -> Result<(), ConnectionFailure> {
        let invalid = |_: InvalidFrame| ConnectionFailure::InvalidReply;
        let mut at = 0;
        let mut calls = lock(calls);
        while at < self.filled {
            let rest = self.bytes.get(at..self.filled).unwrap_or_default();
            let Some((reply, len)) = parse_reply(rest).map_err(invalid)? else {
                break;
            };
            at = at.saturating_add(len);
            if !calls.complete(reply) {
                return Err(ConnectionFailure::InvalidReply);
            }
        }
        drop(calls);
        self.bytes.copy_within(at..self.filled, 0);
        self.filled = self.filled.saturating_sub(at);
        if self.filled == 0 && self.bytes.len() > READ_ROOM {
            self.bytes = Vec::new();
        }
        Ok(())
    }
}
