//! Counts admissions between refusals. At a refusal the server's bucket is empty; between two of them it admits exactly what it gains. So the count,
//! divided by the time between them, is the rate that is left for this client.
//!
//! Must not know: phases, rates that are used.

use tollgate_core::{Nanos, Timestamp};

use super::super::{from_count, seconds};

/// So many refusals in a row show that nothing is admitted until a window ends.
const CLOSED_AFTER: u32 = 4;
/// The shortest time for which a window is closed.
const MIN_CLOSED: Nanos = Nanos::from_millis(500);
/// A window longer than this is not measured: what was admitted so long ago says little.
const MAX_CYCLE: Nanos = Nanos::from_secs(600);
/// The shortest time, and the fewest requests, that measure a rate.
const MIN_SPAN: Nanos = Nanos::from_millis(500);

/// The admissions since the last refusal, and since a window was last closed.
#[derive(Clone, Debug)]
pub(super) struct AdmissionCounter {
    /// When the request was sent that was last refused.
    refused_at: Timestamp,
    admitted: u32,
    /// Whether the client wanted to send more all the time. If not, the count says nothing about the quota.
    is_continuous: bool,
    refused_in_a_row: u32,
    first_in_a_row: Timestamp,
    cycle_at: Timestamp,
    cycle_admitted: u32,
}

impl AdmissionCounter {
    pub(super) const fn new(now: Timestamp) -> Self {
        Self {
            refused_at: Timestamp::EPOCH,
            admitted: 0,
            is_continuous: true,
            refused_in_a_row: 0,
            first_in_a_row: Timestamp::EPOCH,
            cycle_at: now,
            cycle_admitted: 0,
        }
    }

    /// Whether a request was sent after the one that was last refused.
    pub(super) fn is_after_refusal(&self, sent_at: Timestamp) -> bool {
        sent_at > self.refused_at
    }

    /// Records an admission. Returns the rate of the whole cycle, if a closed window has ended with it.
    pub(super) fn on_success(&mut self, sent_at: Timestamp, now: Timestamp) -> Option<f64> {
        if self.is_after_refusal(sent_at) {
            self.admitted = self.admitted.saturating_add(1);
        }
        let cycle = now.since(self.cycle_at);
        let has_ended = self.is_closed(now) && self.cycle_admitted >= 10;
        let rate = f64::from(self.cycle_admitted) / seconds(cycle).max(0.001);
        if has_ended {
            self.restart_cycle(now);
            self.restart(now);
        }
        self.refused_in_a_row = 0;
        self.cycle_admitted = self.cycle_admitted.saturating_add(1);
        (has_ended && cycle <= MAX_CYCLE).then_some(rate)
    }

    /// Records a refusal.
    pub(super) fn on_refusal(&mut self, now: Timestamp) {
        if self.refused_in_a_row == 0 {
            self.first_in_a_row = now;
        }
        self.refused_in_a_row = self.refused_in_a_row.saturating_add(1);
    }

    /// Whether the server admits nothing until a window ends: cutting the rate further would say nothing about the next window.
    pub(super) fn is_closed(&self, now: Timestamp) -> bool {
        self.refused_in_a_row >= CLOSED_AFTER && now.since(self.first_in_a_row) > MIN_CLOSED
    }

    /// Records that the client has nothing more to send.
    pub(super) const fn interrupt(&mut self, now: Timestamp) {
        self.is_continuous = false;
        self.restart_cycle(now);
    }

    /// Begins a new count at a refusal.
    pub(super) const fn restart(&mut self, refused_at: Timestamp) {
        self.refused_at = refused_at;
        self.admitted = 0;
        self.is_continuous = true;
    }

    /// Admissions since the last refusal.
    pub(super) fn count(&self) -> f64 {
        from_count(u64::from(self.admitted))
    }

    /// The rate that was left for this client between the last refusal and one of a request sent at `sent_at`, if it has `at_least` admissions.
    pub(super) fn rate(&self, sent_at: Timestamp, at_least: f64) -> Option<f64> {
        let span = sent_at.since(self.refused_at);
        let is_measured = self.is_continuous && span >= MIN_SPAN && self.count() >= at_least;
        is_measured.then(|| self.count() / seconds(span))
    }

    const fn restart_cycle(&mut self, now: Timestamp) {
        self.cycle_at = now;
        self.cycle_admitted = 0;
    }
}
