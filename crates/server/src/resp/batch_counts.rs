//! What came of the commands of one batch, counted for all of them at once.
//!
//! Counting is cheap, but sixteen commands in one write are cheaper counted once. Must not know: the protocol.

use tollgate_core::Nanos;

use super::throttle::ThrottleFamily;
use tollgate_service::metrics::ThrottleCommand as Throttling;
use tollgate_service::{Metrics, RequestOutcome, Transport};

/// What a command counts as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommandOutcome {
    /// A command that brings its own quota was decided, and is limited or not.
    Throttled(ThrottleFamily, bool),
    /// `TG.CHECK` was decided. Whoever decided it counts what was decided.
    Checked,
    /// It was not understood, or not decided.
    Failed,
    /// It asks for no decision, or was counted before.
    Uncounted,
}

/// What came of some commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct BatchCounts {
    /// Allowed and denied, for each family of commands.
    families: [[u32; 2]; 3],
    /// Decided by whoever decides on `TG.CHECK`, who counts what was decided.
    checked: u32,
    /// Not understood, or not decided.
    failed: u32,
}

impl BatchCounts {
    /// Counts what came of one command.
    #[inline]
    pub(super) fn add(&mut self, counted: CommandOutcome) {
        let count = match counted {
            CommandOutcome::Throttled(family, is_limited) => {
                let family = self.families.get_mut(family as usize);
                family.and_then(|counts| counts.get_mut(usize::from(is_limited)))
            }
            CommandOutcome::Checked => Some(&mut self.checked),
            CommandOutcome::Failed => Some(&mut self.failed),
            CommandOutcome::Uncounted => None,
        };
        if let Some(count) = count {
            *count = count.saturating_add(1);
        }
    }

    /// Hands everything over; the counts are zero then. All commands of a batch took as long as the batch: no answer is
    /// sent before the last is known.
    pub(super) fn flush(&mut self, metrics: &Metrics, span: impl FnOnce() -> Nanos) {
        let counts = std::mem::take(self);
        if counts == Self::default() {
            return;
        }
        let names = [Throttling::Cell, Throttling::Crab, Throttling::Gcra];
        let (mut all_allowed, mut all_denied) = (0_u64, 0_u64);
        for (name, [allowed, denied]) in names.into_iter().zip(counts.families) {
            let [allowed, denied] = [allowed, denied].map(u64::from);
            metrics.record_throttle_commands(name, allowed, denied);
            all_allowed = all_allowed.saturating_add(allowed);
            all_denied = all_denied.saturating_add(denied);
        }
        let failed = u64::from(counts.failed);
        for (answered, times) in [
            (RequestOutcome::Allowed, all_allowed),
            (RequestOutcome::Denied, all_denied),
            (RequestOutcome::Failed, failed),
        ] {
            if times > 0 {
                metrics.record_outcomes(Transport::Resp, answered, times);
            }
        }
        let all = all_allowed
            .saturating_add(all_denied)
            .saturating_add(failed)
            .saturating_add(counts.checked.into());
        metrics.observe_duration(Transport::Resp, span(), all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_counted_once_and_then_forgotten() {
        let metrics = Metrics::new();
        let mut counts = BatchCounts::default();
        for is_limited in [false, false, true] {
            counts.add(CommandOutcome::Throttled(
                ThrottleFamily::Throttlecrab,
                is_limited,
            ));
        }
        counts.add(CommandOutcome::Throttled(ThrottleFamily::Gcra, true));
        counts.add(CommandOutcome::Failed);
        counts.add(CommandOutcome::Checked);
        counts.flush(&metrics, || Nanos::from_nanos(1_500));
        counts.flush(&metrics, || panic!("there is nothing to time"));
        let answered = |answered| metrics.outcome_count(Transport::Resp, answered);
        assert_eq!(answered(RequestOutcome::Allowed), 2);
        assert_eq!(answered(RequestOutcome::Denied), 2);
        assert_eq!(answered(RequestOutcome::Failed), 1);
    }
}
