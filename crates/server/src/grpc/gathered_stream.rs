//! One write for everything that a connection sends in one turn.
//!
//! h2 writes after every call that it hands out, and writes payloads above 256 bytes on their own. Envoy sends many calls on few
//! connections, so that one read brings many calls, and the system call for each answer cost more than its decision. This
//! stream keeps what h2 writes until the connection has read all that has arrived, and then writes it at once. Must not know:
//! frames, calls.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::listen::send_available;

/// From this many bytes on, bytes are written before further ones are taken.
const MAX_GATHERED: usize = 64 * 1024;
/// An empty buffer that is larger is given back, so that a connection that once was busy does not keep it.
const MAX_KEPT: usize = 16 * 1024;

/// A stream whose writes are gathered while a [`TurnHandle`] says so.
#[derive(Debug)]
pub(super) struct GatheredStream<T>(Arc<Mutex<Gatherer<T>>>);

/// Begins and ends the turns of a [`GatheredStream`], which h2 owns.
#[derive(Debug)]
pub(super) struct TurnHandle<T>(Arc<Mutex<Gatherer<T>>>);

#[derive(Debug)]
struct Gatherer<T> {
    io: T,
    buffer: Vec<u8>,
    /// How much of the buffer is written.
    written: usize,
    is_gathering: bool,
}

impl<T> GatheredStream<T> {
    /// Gathers what is written to `io` during turns.
    pub(super) fn new(io: T) -> (Self, TurnHandle<T>) {
        let gatherer = Arc::new(Mutex::new(Gatherer {
            io,
            buffer: Vec::new(),
            written: 0,
            is_gathering: false,
        }));
        (Self(Arc::clone(&gatherer)), TurnHandle(gatherer))
    }
}

impl<T: AsyncWrite + Unpin> TurnHandle<T> {
    /// From now on writes are kept.
    pub(super) fn begin(&self) {
        lock(&self.0).is_gathering = true;
    }

    /// Writes what was kept, and returns how many bytes the peer does not take now. They are written in later turns, which begin
    /// when it takes more.
    ///
    /// # Errors
    ///
    /// The connection is broken.
    pub(super) fn end(&self, context: &mut Context<'_>) -> io::Result<usize> {
        let mut gatherer = lock(&self.0);
        gatherer.is_gathering = false;
        if gatherer.buffer.is_empty() {
            return Ok(0);
        }
        match gatherer.poll_drain(context) {
            Poll::Ready(drained) => drained.map(|()| 0),
            Poll::Pending => Ok(gatherer.buffer.len()),
        }
    }
}

impl<T: AsyncWrite + Unpin> Gatherer<T> {
    /// Ready when everything is written and flushed.
    fn poll_drain(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(rest) = self.buffer.get(self.written..) else {
            return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
        };
        let progress = send_available(&mut self.io, context, rest)?;
        self.written = self.written.saturating_add(progress.sent);
        if !progress.is_flushed {
            return Poll::Pending;
        }
        self.written = 0;
        if self.buffer.capacity() > MAX_KEPT {
            self.buffer = Vec::new();
        } else {
            self.buffer.clear();
        }
        Poll::Ready(Ok(()))
    }

    /// Ready when there is room for more bytes.
    fn poll_room(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.buffer.len() < MAX_GATHERED {
            return Poll::Ready(Ok(()));
        }
        self.poll_drain(context)
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for GatheredStream<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut lock(&self.0).io).poll_read(context, buffer)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for GatheredStream<T> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut gatherer = lock(&self.0);
        ready!(gatherer.poll_room(context))?;
        gatherer.buffer.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut gatherer = lock(&self.0);
        ready!(gatherer.poll_room(context))?;
        let before = gatherer.buffer.len();
        for slice in slices {
            gatherer.buffer.extend_from_slice(slice);
        }
        Poll::Ready(Ok(gatherer.buffer.len().saturating_sub(before)))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut gatherer = lock(&self.0);
        if gatherer.is_gathering {
            return Poll::Ready(Ok(()));
        }
        gatherer.poll_drain(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut gatherer = lock(&self.0);
        ready!(gatherer.poll_drain(context))?;
        Pin::new(&mut gatherer.io).poll_shutdown(context)
    }
}

/// The lock is held by one task for the time of one call. It is there because h2 owns the stream.
fn lock<T>(gatherer: &Mutex<Gatherer<T>>) -> MutexGuard<'_, Gatherer<T>> {
    gatherer.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;
    use tollgate_testkit::seeded_rng::SeededRng;

    /// Takes as many bytes at a time as it is told to.
    #[derive(Debug, Default)]
    struct Peer {
        taken: Vec<u8>,
        writes: usize,
        room: usize,
    }

    impl AsyncWrite for Peer {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            let count = bytes.len().min(self.room);
            if count == 0 {
                return Poll::Pending;
            }
            self.room -= count;
            self.writes += 1;
            self.taken.extend_from_slice(&bytes[..count]);
            Poll::Ready(Ok(count))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    fn gathered(room: usize) -> (GatheredStream<Peer>, TurnHandle<Peer>) {
        GatheredStream::new(Peer {
            room,
            ..Peer::default()
        })
    }

    fn write(stream: &mut GatheredStream<Peer>, bytes: &[u8]) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        match Pin::new(stream).poll_write(&mut context, bytes) {
            Poll::Ready(count) => count.unwrap() == bytes.len(),
            Poll::Pending => false,
        }
    }

    #[test]
    fn what_is_written_in_one_turn_is_one_write() {
        let mut context = Context::from_waker(Waker::noop());
        let (mut stream, turns) = gathered(usize::MAX);
        turns.begin();
        for _ in 0..100 {
            assert!(write(&mut stream, &[1; 300]));
            assert!(Pin::new(&mut stream).poll_flush(&mut context).is_ready());
        }
        assert_eq!(lock(&turns.0).io.writes, 0);
        turns.end(&mut context).unwrap();
        let gatherer = lock(&turns.0);
        assert_eq!((gatherer.io.writes, gatherer.io.taken.len()), (1, 30_000));
        assert!(gatherer.buffer.capacity() <= MAX_KEPT, "it is given back");
    }

    /// Outside of turns a flush writes: the handshake has no turns.
    #[test]
    fn a_flush_outside_of_a_turn_writes() {
        let mut context = Context::from_waker(Waker::noop());
        let (mut stream, turns) = gathered(usize::MAX);
        assert!(write(&mut stream, b"settings"));
        assert!(Pin::new(&mut stream).poll_flush(&mut context).is_ready());
        assert_eq!(lock(&turns.0).io.taken, b"settings");
    }

    #[test]
    fn i06_a_peer_that_takes_nothing_is_owed_a_bounded_number_of_bytes() {
        let (mut stream, turns) = gathered(0);
        turns.begin();
        let chunk = [0; 1_000];
        let taken = (0..1_000).filter(|_| write(&mut stream, &chunk)).count();
        assert!(lock(&turns.0).buffer.len() < MAX_GATHERED + chunk.len());
        assert_eq!(taken, MAX_GATHERED.div_ceil(chunk.len()));
    }

    /// However the peer takes them, all bytes arrive once and in order, also by a shutdown in the middle of a turn.
    #[test]
    fn no_byte_is_lost_doubled_or_reordered() {
        for seed in 0..200 {
            let mut random = SeededRng::new(seed);
            let mut context = Context::from_waker(Waker::noop());
            let (mut stream, turns) = gathered(0);
            let mut sent = Vec::new();
            for _ in 0..random.below(50) {
                turns.begin();
                for _ in 0..random.below(20) {
                    let byte = u8::try_from(random.below(256)).unwrap();
                    let chunk = vec![byte; usize::try_from(random.below(5_000)).unwrap()];
                    if write(&mut stream, &chunk) {
                        sent.extend_from_slice(&chunk);
                    }
                }
                lock(&turns.0).io.room += usize::try_from(random.below(60_000)).unwrap();
                turns.end(&mut context).unwrap();
            }
            turns.begin();
            lock(&turns.0).io.room = usize::MAX;
            let shut = Pin::new(&mut stream).poll_shutdown(&mut context);
            assert!(matches!(shut, Poll::Ready(Ok(()))));
            assert!(lock(&turns.0).io.taken == sent, "seed {seed}");
        }
    }
}
