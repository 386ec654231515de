//! Whether nodes of one fleet differ in what they must have in common, for longer than a change takes to get round.
//!
//! Must not know: registers, how alarms are told.

/// What nodes must have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mismatch {
    /// The secret that keys digests: nodes with different ones count apart, each to the whole limit.
    Secret,
    /// The policy in force.
    Policy,
}

impl Mismatch {
    /// Each of them.
    pub const ALL: [Self; 2] = [Self::Secret, Self::Policy];

    /// As metrics and pages call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Secret => "secret",
            Self::Policy => "policy",
        }
    }
}

/// What has changed about an alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AlarmChange {
    Raised,
    Cleared,
}

/// An alarm that is slow to go off and quick to end.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MismatchAlarm {
    /// For how many beats nodes have differed.
    beats: u32,
    is_on: bool,
    differing: usize,
}

impl MismatchAlarm {
    /// So many nodes differ at this beat.
    pub(super) fn observe(&mut self, differing: usize, patience: u32) -> Option<AlarmChange> {
        self.differing = differing;
        if differing == 0 {
            self.beats = 0;
            return std::mem::replace(&mut self.is_on, false).then_some(AlarmChange::Cleared);
        }
        self.beats = self.beats.saturating_add(1);
        let goes_off = !self.is_on && self.beats > patience;
        self.is_on |= goes_off;
        goes_off.then_some(AlarmChange::Raised)
    }

    /// How many nodes differ, if that is alarming.
    pub(super) const fn active_count(self) -> usize {
        if self.is_on { self.differing } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_off_once_after_its_patience_and_ends_at_once() {
        let mut alarm = MismatchAlarm::default();
        let mut look = |differing| {
            let turned = alarm.observe(differing, 2);
            (turned, alarm.active_count())
        };
        assert_eq!(look(1), (None, 0));
        assert_eq!(look(0), (None, 0), "it was a reload");
        assert_eq!(look(1), (None, 0));
        assert_eq!(look(1), (None, 0));
        assert_eq!(look(1), (Some(AlarmChange::Raised), 1));
        assert_eq!(look(3), (None, 3), "told once");
        assert_eq!(look(0), (Some(AlarmChange::Cleared), 0));
        assert_eq!(look(0), (None, 0));
    }
}
