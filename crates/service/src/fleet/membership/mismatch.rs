//! Detects nodes of one fleet that differ in their secret or policy for longer than a rollout takes.
//!
//! Must not know: registers, how alarms are reported.

/// What must be the same on all nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mismatch {
    /// The secret of digests: nodes with different secrets count separately, each up to the whole limit.
    Secret,
    /// The current policy.
    Policy,
}

impl Mismatch {
    /// All kinds.
    pub const ALL: [Self; 2] = [Self::Secret, Self::Policy];

    /// Its name in metrics and admin pages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Secret => "secret",
            Self::Policy => "policy",
        }
    }
}

/// A change of an alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AlarmChange {
    Raised,
    Cleared,
}

/// An alarm that is raised after several heartbeats with a mismatch and cleared by the first one without.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MismatchAlarm {
    /// The number of consecutive heartbeats with a mismatch.
    beats: u32,
    is_on: bool,
    differing: usize,
}

impl MismatchAlarm {
    /// Records how many nodes differ at this heartbeat. The alarm is raised after more than `threshold` heartbeats.
    pub(super) fn observe(&mut self, differing: usize, threshold: u32) -> Option<AlarmChange> {
        self.differing = differing;
        if differing == 0 {
            self.beats = 0;
            return std::mem::replace(&mut self.is_on, false).then_some(AlarmChange::Cleared);
        }
        self.beats = self.beats.saturating_add(1);
        let is_raised = !self.is_on && self.beats > threshold;
        self.is_on |= is_raised;
        is_raised.then_some(AlarmChange::Raised)
    }

    /// The number of nodes that differ while the alarm is raised, otherwise zero.
    pub(super) const fn active_count(self) -> usize {
        if self.is_on { self.differing } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_alarm_is_raised_once_after_its_threshold_and_cleared_at_once() {
        let mut alarm = MismatchAlarm::default();
        let mut observe = |differing| {
            let turned = alarm.observe(differing, 2);
            (turned, alarm.active_count())
        };
        assert_eq!(observe(1), (None, 0));
        assert_eq!(observe(0), (None, 0), "a reload in progress");
        assert_eq!(observe(1), (None, 0));
        assert_eq!(observe(1), (None, 0));
        assert_eq!(observe(1), (Some(AlarmChange::Raised), 1));
        assert_eq!(observe(3), (None, 3), "reported once");
        assert_eq!(observe(0), (Some(AlarmChange::Cleared), 0));
        assert_eq!(observe(0), (None, 0));
    }
}
