//! A look inside an index, and ways to damage it, for its tests and their controls.
//!
//! Must not know: what finds the damage.

use super::super::network_index::NetworkIndex;
use super::{ExactIndex, Matcher, PrefixTree};

/// What is wrong with it.
#[derive(Clone, Copy, Debug)]
pub(in super::super) enum IndexFault {
    NoRoutes,
    NoValues,
    NoNetworks,
    NoPrefixes,
    NoSuffixes,
    NoUnindexed,
    NoGroups,
    ShortValuesOnly,
    NoOtherConditions,
}

impl IndexFault {
    pub(in super::super) const ALL: [Self; 9] = [
        Self::NoRoutes,
        Self::NoValues,
        Self::NoNetworks,
        Self::NoPrefixes,
        Self::NoSuffixes,
        Self::NoUnindexed,
        Self::NoGroups,
        Self::ShortValuesOnly,
        Self::NoOtherConditions,
    ];
}

impl Matcher {
    /// The most entries that can turn up by one exact value or one route, or have to be checked always.
    pub(in super::super) fn largest_bucket(&self) -> usize {
        let values = self
            .exact
            .iter()
            .flat_map(|(_, exact)| exact.values.values());
        let routes = self.routes.values().map(|named| &named.entries);
        let all = values.chain(routes).map(Vec::len);
        all.chain([self.unindexed.len()]).max().unwrap_or(0)
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
            IndexFault::NoGroups => self
                .limits
                .iter_mut()
                .for_each(|standing| standing.group = None),
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
