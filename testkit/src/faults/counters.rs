//! What has passed: connections and when they were made, bytes, and commands by their names.
//!
//! Must not know: sockets, toxics.

use std::collections::BTreeMap;
use std::time::Duration;

/// Beyond so many connections their times are no longer kept, and beyond so many names all others are one.
const MOST_TIMES: usize = 100_000;
const MOST_NAMES: usize = 1_000;

/// What has passed so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Connections that were accepted, whatever became of them.
    pub connects: u64,
    /// Those for which the server could not be reached.
    pub unreached: u64,
    /// Bytes that clients sent.
    pub bytes_there: u64,
    /// Bytes that the server sent.
    pub bytes_back: u64,
    /// Replies that were lost or replaced.
    pub meddled: u64,
    commands: BTreeMap<String, u64>,
    connected_after: Vec<Duration>,
}

impl Counters {
    /// How often clients have sent a command: `EVALSHA`, `SCRIPT LOAD`.
    #[must_use]
    pub fn commands(&self, name: &str) -> u64 {
        self.commands.get(name).copied().unwrap_or(0)
    }

    /// How often clients have sent any.
    #[must_use]
    pub fn all_commands(&self) -> u64 {
        self.commands.values().sum()
    }

    /// How many connections were made in each span of time since the proxy began.
    #[must_use]
    pub fn connects_in_each(&self, span: Duration) -> Vec<u64> {
        let mut histogram = Vec::new();
        for after in &self.connected_after {
            let index = after.as_nanos().checked_div(span.as_nanos()).unwrap_or(0);
            let index = usize::try_from(index).unwrap_or(0);
            if histogram.len() <= index {
                histogram.resize(index + 1, 0);
            }
            if let Some(count) = histogram.get_mut(index) {
                *count += 1;
            }
        }
        histogram
    }

    /// The most connections that were made within any span of this length.
    #[must_use]
    pub fn most_connects_within(&self, span: Duration) -> u64 {
        let (mut most, mut first) = (0, 0);
        for (index, after) in self.connected_after.iter().enumerate() {
            let is_too_early = |first: usize| {
                let began = self.connected_after.get(first);
                began.is_some_and(|began| after.saturating_sub(*began) > span)
            };
            while is_too_early(first) {
                first += 1;
            }
            most = most.max(index + 1 - first);
        }
        most as u64
    }

    pub(super) fn connected(&mut self, after: Duration) {
        self.connects += 1;
        if self.connected_after.len() < MOST_TIMES {
            self.connected_after.push(after);
        }
    }

    pub(super) fn commanded(&mut self, name: &str) {
        let is_known = self.commands.contains_key(name);
        let name = if is_known || self.commands.len() < MOST_NAMES {
            name
        } else {
            "…"
        };
        *self.commands.entry(name.to_owned()).or_default() += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_counted_by_when_they_were_made() {
        let mut counters = Counters::default();
        for after in [0, 10, 90, 110, 350] {
            counters.connected(Duration::from_millis(after));
        }
        let span = Duration::from_millis(100);
        assert_eq!(counters.connects_in_each(span), [3, 1, 0, 1]);
        assert_eq!(counters.most_connects_within(span), 3);
        assert_eq!(counters.most_connects_within(Duration::ZERO), 1);
        assert_eq!(counters.connects, 5);
    }

    #[test]
    fn names_beyond_the_bound_are_one() {
        let mut counters = Counters::default();
        for number in 0..MOST_NAMES + 5 {
            counters.commanded(&format!("COMMAND{number}"));
        }
        counters.commanded("COMMAND1");
        assert_eq!(counters.commands("COMMAND1"), 2);
        assert_eq!(counters.commands("…"), 5);
        assert_eq!(counters.all_commands(), MOST_NAMES as u64 + 6);
    }
}
