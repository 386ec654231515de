//! The calls on one connection: those to be written, and those whose replies are awaited, in order.
//!
//! A call has a slot until its reply has been taken. If its caller is gone, the reply is dropped when it arrives. Must not
//! know: what is in a call, sockets, tasks.

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::task::{Context, Poll, Waker};

use redis::{ErrorKind, RedisError};

use crate::wire::{InvalidFrame, ServerReply};

/// Buffers above this size are not kept for the next write.
const MAX_KEPT_BUFFER: usize = 64 << 10;

/// So many calls are written without waiting for further ones.
const FULL_WRITE: usize = 16;

/// Why a connection can no longer be used, or does not take a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionFailure {
    Io(io::ErrorKind),
    InvalidReply,
    /// Too many replies are awaited. The call was not sent.
    QueueFull,
}

impl From<io::Error> for ConnectionFailure {
    fn from(error: io::Error) -> Self {
        Self::Io(error.kind())
    }
}

impl From<ConnectionFailure> for RedisError {
    fn from(failure: ConnectionFailure) -> Self {
        match failure {
            ConnectionFailure::Io(kind) => io::Error::from(kind).into(),
            ConnectionFailure::InvalidReply => InvalidFrame.into(),
            ConnectionFailure::QueueFull => {
                Self::from((ErrorKind::Client, "too many replies are awaited"))
            }
        }
    }
}

/// The place of a call in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CallSlot(usize);

#[derive(Debug)]
enum SlotState {
    Free,
    Waiting(Option<Waker>),
    /// The caller is gone.
    Abandoned,
    Replied(ServerReply),
    Failed(ConnectionFailure),
}

/// The calls on one connection.
#[derive(Debug)]
pub(super) struct CallQueue {
    unsent: Vec<u8>,
    /// The number of calls in `unsent`.
    unsent_calls: usize,
    slots: Vec<SlotState>,
    free: Vec<CallSlot>,
    /// The calls whose replies are awaited. The server replies in this order.
    awaited: VecDeque<CallSlot>,
    max_awaited: usize,
    /// The task that writes and reads.
    driver: Option<Waker>,
    failure: Option<ConnectionFailure>,
}

impl CallQueue {
    /// A queue of at most `max_awaited` replies.
    pub(super) fn new(max_awaited: usize) -> Self {
        Self {
            unsent: Vec::new(),
            unsent_calls: 0,
            slots: Vec::new(),
            free: Vec::new(),
            awaited: VecDeque::new(),
            max_awaited,
            driver: None,
            failure: None,
        }
    }

    /// Appends a call that `write` encodes. It goes out with the next write.
    pub(super) fn push(
        &mut self,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Result<CallSlot, ConnectionFailure> {
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        if self.awaited.len() >= self.max_awaited {
            return Err(ConnectionFailure::QueueFull);
        }
        write(&mut self.unsent);
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(SlotState::Free);
            CallSlot(self.slots.len().saturating_sub(1))
        });
        self.set(slot, SlotState::Waiting(None));
        self.awaited.push_back(slot);
        self.unsent_calls = self.unsent_calls.saturating_add(1);
        // The first call starts the driver, which lets other tasks call too. It does not wait for more than a full write.
        if let (1 | FULL_WRITE, Some(driver)) = (self.unsent_calls, &self.driver) {
            driver.wake_by_ref();
        }
        Ok(slot)
    }

    /// The reply to a call, which gives up its slot; pending until it has arrived.
    pub(super) fn poll_reply(
        &mut self,
        slot: CallSlot,
        context: &Context<'_>,
    ) -> Poll<Result<ServerReply, ConnectionFailure>> {
        let Some(state) = self.slots.get_mut(slot.0) else {
            return Poll::Ready(Err(ConnectionFailure::InvalidReply));
        };
        if let SlotState::Waiting(waker) = state {
            match waker {
                Some(waker) => waker.clone_from(context.waker()),
                None => *waker = Some(context.waker().clone()),
            }
            return Poll::Pending;
        }
        let state = mem::replace(state, SlotState::Free);
        self.free.push(slot);
        Poll::Ready(match state {
            SlotState::Replied(reply) => Ok(reply),
            SlotState::Failed(failure) => Err(failure),
            // A slot is given up once.
            SlotState::Free | SlotState::Abandoned | SlotState::Waiting(_) => {
                Err(ConnectionFailure::InvalidReply)
            }
        })
    }

    /// The caller is gone.
    pub(super) fn abandon(&mut self, slot: CallSlot) {
        match self.slots.get_mut(slot.0) {
            Some(state @ SlotState::Waiting(_)) => *state = SlotState::Abandoned,
            Some(state) => {
                *state = SlotState::Free;
                self.free.push(slot);
            }
            None => {}
        }
    }

    /// The next reply has arrived. Returns false if no call awaits one.
    pub(super) fn complete(&mut self, reply: ServerReply) -> bool {
        let Some(slot) = self.awaited.pop_front() else {
            return false;
        };
        self.finish(slot, SlotState::Replied(reply));
        true
    }

    /// The connection can no longer be used: no further reply arrives.
    pub(super) fn fail(&mut self, failure: ConnectionFailure) {
        self.failure.get_or_insert(failure);
        self.unsent = Vec::new();
        while let Some(slot) = self.awaited.pop_front() {
            self.finish(slot, SlotState::Failed(failure));
        }
    }

    /// Whether there is something to write; otherwise the driver is woken when there is.
    pub(super) fn poll_unsent(&mut self, context: &Context<'_>) -> Poll<()> {
        if !self.unsent.is_empty() {
            return Poll::Ready(());
        }
        match &mut self.driver {
            Some(driver) => driver.clone_from(context.waker()),
            None => self.driver = Some(context.waker().clone()),
        }
        Poll::Pending
    }

    /// Moves everything that is to be written to `outgoing`, which is empty.
    pub(super) fn take_unsent(&mut self, outgoing: &mut Vec<u8>) {
        if outgoing.capacity() > MAX_KEPT_BUFFER {
            *outgoing = Vec::new();
        }
        mem::swap(&mut self.unsent, outgoing);
        self.unsent_calls = 0;
    }

    fn finish(&mut self, slot: CallSlot, outcome: SlotState) {
        match self.slots.get_mut(slot.0) {
            Some(SlotState::Abandoned) => {
                self.set(slot, SlotState::Free);
                self.free.push(slot);
            }
            Some(state) => {
                if let SlotState::Waiting(Some(waker)) = mem::replace(state, outcome) {
                    waker.wake();
                }
            }
            None => {}
        }
    }

    fn set(&mut self, slot: CallSlot, state: SlotState) {
        if let Some(place) = self.slots.get_mut(slot.0) {
            *place = state;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    /// Counts how often it is woken.
    #[derive(Default)]
    struct WakeCount(AtomicUsize);

    impl Wake for WakeCount {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A driver that waited for further calls without a bound let calls miss their deadlines.
    #[test]
    fn the_driver_is_woken_by_the_first_call_and_when_a_write_is_full() {
        let mut queue = CallQueue::new(1_000);
        let count = Arc::new(WakeCount::default());
        let waker = Waker::from(Arc::clone(&count));
        assert!(queue.poll_unsent(&Context::from_waker(&waker)).is_pending());
        let mut wakes = Vec::new();
        for _ in 0..=FULL_WRITE {
            queue.push(|bytes| bytes.push(b'x')).unwrap();
            wakes.push(count.0.load(Ordering::Relaxed));
        }
        assert_eq!(wakes.first(), Some(&1));
        assert_eq!(wakes.get(FULL_WRITE - 2), Some(&1));
        assert_eq!(wakes.get(FULL_WRITE - 1), Some(&2));
        assert_eq!(wakes.last(), Some(&2));
        let mut outgoing = Vec::new();
        queue.take_unsent(&mut outgoing);
        assert_eq!(outgoing.len(), FULL_WRITE + 1);
        queue.push(|bytes| bytes.push(b'x')).unwrap();
        assert_eq!(count.0.load(Ordering::Relaxed), 3);
    }

    fn number(n: i64) -> ServerReply {
        ServerReply::Integers([n].into_iter().collect())
    }

    fn take(queue: &mut CallQueue, slot: CallSlot) -> Poll<Result<ServerReply, ConnectionFailure>> {
        queue.poll_reply(slot, &Context::from_waker(Waker::noop()))
    }

    #[test]
    fn replies_reach_their_calls_in_order_also_if_a_caller_is_gone() {
        let mut queue = CallQueue::new(8);
        let slots: Vec<CallSlot> = (0..3).map(|_| queue.push(|_| {}).unwrap()).collect();
        queue.abandon(slots[1]);
        assert!(queue.complete(number(0)));
        assert!(queue.complete(number(1)));
        assert!(take(&mut queue, slots[2]).is_pending());
        assert!(queue.complete(number(2)));
        assert_eq!(take(&mut queue, slots[0]), Poll::Ready(Ok(number(0))));
        assert_eq!(take(&mut queue, slots[2]), Poll::Ready(Ok(number(2))));
        assert!(!queue.complete(number(3)), "nothing is awaited");
    }

    #[test]
    fn slots_are_used_again_and_the_queue_is_bounded() {
        let mut queue = CallQueue::new(2);
        for _ in 0..100 {
            let (one, gone) = (queue.push(|_| {}).unwrap(), queue.push(|_| {}).unwrap());
            assert_eq!(queue.push(|_| {}), Err(ConnectionFailure::QueueFull));
            queue.abandon(gone);
            assert!(queue.complete(number(1)) && queue.complete(number(2)));
            assert_eq!(take(&mut queue, one), Poll::Ready(Ok(number(1))));
        }
        assert_eq!(queue.slots.len(), 2);
        // A reply that arrived and is not taken.
        let one = queue.push(|_| {}).unwrap();
        assert!(queue.complete(number(1)));
        queue.abandon(one);
        assert_eq!(queue.free.len(), 2);
    }

    #[test]
    fn a_failed_connection_fails_every_call_and_takes_no_more() {
        let mut queue = CallQueue::new(8);
        let slot = queue.push(|bytes| bytes.push(b'x')).unwrap();
        let failure = ConnectionFailure::Io(io::ErrorKind::BrokenPipe);
        queue.fail(failure);
        assert_eq!(take(&mut queue, slot), Poll::Ready(Err(failure)));
        assert_eq!(queue.push(|_| {}), Err(failure));
        assert!(queue.unsent.is_empty());
    }
}
