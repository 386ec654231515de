//! What came of the commands of one batch, counted for all of them at once.
//!
//! Counting is cheap, but sixteen commands in one write are cheaper counted once. Must not know: the protocol.

use tollgate_core::Nanos;

use super::throttle::Family;
use tollgate_service::metrics::ThrottleCommand as Throttling;
use tollgate_service::{Answered, Metrics, Transport};

/// What came of some commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// Allowed and denied, for each family of commands.
    families: [[u32; 2]; 3],
    /// Decided by whoever decides on `TG.CHECK`, who counts what was decided.
    checked: u32,
    /// Not understood, or not decided.
    failed: u32,
}

impl Tally {
    /// A command that brings its own quota was decided.
    #[inline]
    pub(super) fn throttled(&mut self, family: Family, is_limited: bool) {
        let place = self.families.get_mut(family as usize);
        if let Some(count) = place.and_then(|place| place.get_mut(usize::from(is_limited))) {
            *count = count.saturating_add(1);
        }
    }

    /// `TG.CHECK` was asked, and decided or not.
    pub(super) fn asked(&mut self, is_decided: bool) {
        if is_decided {
            self.checked = self.checked.saturating_add(1);
        } else {
            self.failed();
        }
    }

    /// A question got no decision.
    pub(super) fn failed(&mut self) {
        self.failed = self.failed.saturating_add(1);
    }

    /// Hands everything over; the tally is empty then. All commands of a batch took as long as the batch: no answer is
    /// sent before the last is known.
    pub(super) fn hand_over(&mut self, metrics: &Metrics, span: impl FnOnce() -> Nanos) {
        let tally = std::mem::take(self);
        if tally == Self::default() {
            return;
        }
        let names = [Throttling::Cell, Throttling::Crab, Throttling::Gcra];
        let (mut all_allowed, mut all_denied) = (0_u64, 0_u64);
        for (name, [allowed, denied]) in names.into_iter().zip(tally.families) {
            let [allowed, denied] = [allowed, denied].map(u64::from);
            metrics.throttled(name, allowed, denied);
            all_allowed = all_allowed.saturating_add(allowed);
            all_denied = all_denied.saturating_add(denied);
        }
        let failed = u64::from(tally.failed);
        for (answered, times) in [
            (Answered::Allowed, all_allowed),
            (Answered::Denied, all_denied),
            (Answered::Failed, failed),
        ] {
            if times > 0 {
                metrics.count_answers(Transport::Resp, answered, times);
            }
        }
        let all = all_allowed
            .saturating_add(all_denied)
            .saturating_add(failed)
            .saturating_add(tally.checked.into());
        metrics.observe_duration(Transport::Resp, span(), all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_counted_once_and_then_forgotten() {
        let metrics = Metrics::new();
        let mut tally = Tally::default();
        for is_limited in [false, false, true] {
            tally.throttled(Family::Crab, is_limited);
        }
        tally.throttled(Family::Gcra, true);
        tally.failed();
        tally.asked(true);
        tally.hand_over(&metrics, || Nanos::from_nanos(1_500));
        tally.hand_over(&metrics, || panic!("there is nothing to time"));
        let answered = |answered| metrics.answered(Transport::Resp, answered);
        assert_eq!(answered(Answered::Allowed), 2);
        assert_eq!(answered(Answered::Denied), 2);
        assert_eq!(answered(Answered::Failed), 1);
    }
}
