//! Inspects an index and injects faults, for tests and their negative controls.
//!
//! Must not know: which tests find the faults.

use super::super::network_index::NetworkIndex;
use super::{ExactIndex, Matcher, PrefixTree, PresenceIndex};

/// A fault of an index.
#[derive(Clone, Copy, Debug)]
pub(in super::super) enum IndexFault {
    NoRoutes,
    NoValues,
    NoNetworks,
    NoPrefixes,
    NoSuffixes,
    NoUnindexed,
    NoUnconditional,
    NoPresence,
    NoPresentNames,
    NoGroups,
    ShortValuesOnly,
    NoOtherConditions,
}

impl IndexFault {
    pub(in super::super) const ALL: [Self; 12] = [
        Self::NoRoutes,
        Self::NoValues,
        Self::NoNetworks,
        Self::NoPrefixes,
        Self::NoSuffixes,
        Self::NoUnindexed,
        Self::NoUnconditional,
        Self::NoPresence,
        Self::NoPresentNames,
        Self::NoGroups,
        Self::ShortValuesOnly,
        Self::NoOtherConditions,
    ];
}

impl Matcher {
    /// The size of the largest index bucket: entries under one exact value, one route or one present attribute, or
    /// unindexed entries.
    pub(in super::super) fn largest_bucket(&self) -> usize {
        let values = self
            .exact
            .iter()
            .flat_map(|(_, exact)| exact.values.values());
        let routes = self.routes.values().map(|named| &named.entries);
        let all = values.chain(routes).map(Vec::len);
        all.chain([self.unindexed.len(), self.present.largest_bucket()])
            .max()
            .unwrap_or(0)
    }

    pub(in super::super) fn inject(&mut self, broken: IndexFault) {
        match broken {
            IndexFault::NoRoutes => self.needed.path = false,
            IndexFault::NoValues => self
                .exact
                .iter_mut()
                .for_each(|(_, exact)| *exact = ExactIndex::default()),
            IndexFault::NoNetworks => self.networks = NetworkIndex::new([]),
            IndexFault::NoPrefixes => self
                .globs
                .iter_mut()
                .for_each(|(_, ends)| ends.by_prefix = PrefixTree::new()),
            IndexFault::NoSuffixes => self
                .globs
                .iter_mut()
                .for_each(|(_, ends)| ends.by_suffix = PrefixTree::new()),
            IndexFault::NoUnindexed => self.unindexed.clear(),
            IndexFault::NoUnconditional => self.unconditional.clear(),
            IndexFault::NoPresence => self.present = PresenceIndex::default(),
            IndexFault::NoPresentNames => self.present.forget_names(),
            IndexFault::NoGroups => self
                .limits
                .iter_mut()
                .for_each(|precedence| precedence.group = None),
            IndexFault::ShortValuesOnly => {
                self.exact
                    .iter_mut()
                    .for_each(|(_, exact)| exact.longest = exact.longest.saturating_sub(1));
            }
            IndexFault::NoOtherConditions => self
                .entries
                .iter_mut()
                .for_each(|entry| entry.other_conditions = Box::default()),
        }
    }
}
