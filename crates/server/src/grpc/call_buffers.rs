//! The buffers of unfinished calls: each call counts towards its connection, and each connection towards the server's budget.
//!
//! A call that arrives whole is never counted. Must not know: calls, messages.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::status::{GrpcCode, GrpcStatus};
use crate::listen::counters::ListenerCounters;
use crate::listen::{BufferBudget, BufferPriority, BufferReservation, UNCOUNTED_LEN};

/// What an unfinished call costs besides its message: its stream, its task and its timer.
pub(super) const CALL_LEN: usize = 1_024;
/// A connection that buffers no more than this is not counted. It has many calls at once, so it is more than on connections
/// of other protocols.
const UNCOUNTED_CONNECTION_LEN: usize = 4 * UNCOUNTED_LEN;

/// The buffers of one connection.
#[derive(Debug)]
pub(super) struct ConnectionBuffers {
    reserved: Mutex<BufferReservation>,
    counters: Arc<ListenerCounters>,
}

/// The buffers of one call. They are released on drop.
#[derive(Debug)]
pub(super) struct CallBuffers {
    connection: Arc<ConnectionBuffers>,
    held: usize,
}

impl ConnectionBuffers {
    pub(super) fn new(budget: &Arc<BufferBudget>, counters: &Arc<ListenerCounters>) -> Arc<Self> {
        let reserved = BufferReservation::new(Arc::clone(budget), BufferPriority::Normal);
        Arc::new(Self {
            reserved: Mutex::new(reserved.with_uncounted_len(UNCOUNTED_CONNECTION_LEN)),
            counters: Arc::clone(counters),
        })
    }

    /// The time that a client gets to complete a message.
    pub(super) fn timeout(&self, full: Duration) -> Duration {
        self.with_reservation(|reserved| reserved.budget().timeout(full))
    }

    /// The counters of the listener.
    pub(super) fn counters(&self) -> &ListenerCounters {
        &self.counters
    }

    fn with_reservation<T>(&self, work: impl FnOnce(&mut BufferReservation) -> T) -> T {
        let mut reserved = self.reserved.lock().unwrap_or_else(PoisonError::into_inner);
        work(&mut reserved)
    }
}

impl CallBuffers {
    pub(super) const fn new(connection: Arc<ConnectionBuffers>) -> Self {
        Self {
            connection,
            held: 0,
        }
    }

    /// The bytes that are reserved.
    pub(super) const fn held(&self) -> usize {
        self.held
    }

    pub(super) const fn connection(&self) -> &Arc<ConnectionBuffers> {
        &self.connection
    }

    /// Reserves this many bytes in all for the call, of which the client has declared `declared`. The error ends the call.
    pub(super) fn resize(&mut self, bytes: usize, declared: usize) -> Result<(), GrpcStatus> {
        let is_reserved = self.connection.with_reservation(|reserved| {
            let others = reserved.held().saturating_sub(self.held);
            let is_small = bytes.max(declared) <= UNCOUNTED_LEN;
            let priority = match is_small {
                true => BufferPriority::Small,
                false => BufferPriority::Normal,
            };
            (is_small || reserved.fits(others.saturating_add(declared)))
                && reserved
                    .resize_with(others.saturating_add(bytes), priority)
                    .is_ok()
        });
        if is_reserved {
            self.held = bytes;
            return Ok(());
        }
        let counters = &self.connection.counters;
        self.connection
            .with_reservation(|reserved| reserved.budget().record_refusal(counters));
        let message = "the server buffers too many requests; send the message again later";
        Err(GrpcStatus::new(GrpcCode::ResourceExhausted, message))
    }

    /// Releases all bytes.
    pub(super) fn release(&mut self) {
        let held = std::mem::take(&mut self.held);
        if held > 0 {
            self.connection.with_reservation(|reserved| {
                let others = reserved.held().saturating_sub(held);
                // Fewer bytes always fit.
                let _fits = reserved.resize(others).is_ok();
            });
        }
    }
}

impl Drop for CallBuffers {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_share_the_uncounted_bytes_of_their_connection() {
        let (budget, counters) = (Arc::new(BufferBudget::new(100_000)), Arc::default());
        let connection = ConnectionBuffers::new(&budget, &counters);
        let call = || CallBuffers::new(Arc::clone(&connection));
        let mut calls: Vec<_> = (0..16).map(|_| call()).collect();
        for call in &mut calls {
            call.resize(CALL_LEN, 0).unwrap();
        }
        assert_eq!(budget.used(), 0);
        let mut another = call();
        another.resize(CALL_LEN, 0).unwrap();
        assert_eq!(budget.used(), 17 * CALL_LEN);
        another.resize(CALL_LEN + 50_000, 60_000).unwrap_err();
        let full = another.resize(CALL_LEN + 50_000, 70_000).unwrap_err();
        assert_eq!(full.code, GrpcCode::ResourceExhausted);
        assert_eq!(counters.refused_buffers(), 2);
        another.resize(CALL_LEN + 50_000, 50_000).unwrap();
        assert_eq!(budget.used(), 17 * CALL_LEN + 50_000);
        another.release();
        assert_eq!(budget.used(), 0);
        drop((another, calls));
        assert_eq!(budget.used(), 0);
    }
}
