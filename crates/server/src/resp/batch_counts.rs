//! Outcome counts of the commands of one batch, added to the metrics once per batch.
//!
//! One update for sixteen pipelined commands is cheaper than sixteen. Must not know: the protocol.

use tollgate_core::Nanos;

use super::throttle::ThrottleFamily;
use tollgate_service::metrics::ThrottleCommand;
use tollgate_service::{Metrics, RequestOutcome, Transport};

/// How a command is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommandOutcome {
    /// A throttle command was decided; the flag says whether it is limited.
    Throttled(ThrottleFamily, bool),
    /// `TG.CHECK` was decided. The checker counts the decision.
    Checked,
    /// The command was invalid or not decided.
    Failed,
    /// The command asks for no decision, or is already counted.
    Uncounted,
}

/// The outcome counts of some commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct BatchCounts {
    /// Allowed and denied, for each throttle family.
    families: [[u32; 2]; 3],
    /// Commands decided by the checker, which counts the decisions.
    checked: u32,
    /// Invalid or undecided commands.
    failed: u32,
}

impl BatchCounts {
    /// Counts one command.
    #[inline]
    pub(super) fn add(&mut self, outcome: CommandOutcome) {
        let count = match outcome {
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

    /// Adds the counts to the metrics and resets them. All commands of a batch count with the duration of the batch, because no
    /// reply is sent before the last one is known.
    pub(super) fn flush(&mut self, metrics: &Metrics, span: impl FnOnce() -> Nanos) {
        let counts = std::mem::take(self);
        if counts == Self::default() {
            return;
        }
        let names = [
            ThrottleCommand::Cell,
            ThrottleCommand::Crab,
            ThrottleCommand::Gcra,
        ];
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
    fn a_batch_is_counted_once_and_then_reset() {
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
