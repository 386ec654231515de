//! Futures that end at a time. The pacer's thread wakes them, so they need no runtime.
//!
//! Must not know: why somebody waits.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use tollgate_core::Timestamp;
use tollgate_store::Clock;

use crate::shared_pacer::SharedPacer;

/// The alarms that are set, by their time. There is at most one for each request that is under way.
#[derive(Debug, Default)]
pub(crate) struct AlarmTable {
    wakers: BTreeMap<AlarmId, Waker>,
    next_number: u64,
}

/// The time of an alarm, and a number that no other alarm has.
pub(crate) type AlarmId = (Timestamp, u64);

impl AlarmTable {
    /// Sets an alarm, or replaces the waker of one that is set.
    pub(crate) fn set(&mut self, at: Timestamp, id: Option<AlarmId>, waker: Waker) -> AlarmId {
        let id = id.unwrap_or_else(|| {
            self.next_number = self.next_number.wrapping_add(1);
            (at, self.next_number)
        });
        self.wakers.insert(id, waker);
        id
    }

    pub(crate) fn remove(&mut self, id: AlarmId) -> Option<Waker> {
        self.wakers.remove(&id)
    }

    /// When the next alarm is due.
    pub(crate) fn next(&self) -> Option<Timestamp> {
        self.wakers.keys().next().map(|(at, _)| *at)
    }

    /// Takes the wakers of all alarms that are due.
    pub(crate) fn take_due(&mut self, now: Timestamp) -> impl Iterator<Item = Waker> {
        let later = self.wakers.split_off(&(now, u64::MAX));
        std::mem::replace(&mut self.wakers, later).into_values()
    }
}

/// Ends at a time of the pacer's clock.
#[must_use = "futures do nothing unless polled"]
pub(crate) struct Alarm<C: Clock + 'static> {
    pacer: SharedPacer<C>,
    at: Timestamp,
    id: Option<AlarmId>,
}

impl<C: Clock + 'static> Alarm<C> {
    pub(crate) const fn new(pacer: SharedPacer<C>, at: Timestamp) -> Self {
        Self {
            pacer,
            at,
            id: None,
        }
    }
}

impl<C: Clock + 'static> Future for Alarm<C> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.pacer.now() >= self.at {
            return Poll::Ready(());
        }
        let id = self
            .pacer
            .set_alarm(self.at, self.id, context.waker().clone());
        self.id = Some(id);
        Poll::Pending
    }
}

impl<C: Clock + 'static> Drop for Alarm<C> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.pacer.remove_alarm(id);
        }
    }
}
