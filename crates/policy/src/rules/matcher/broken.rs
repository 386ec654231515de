//! A look inside an index, and ways to damage it, for its tests and their controls.
//!
//! Must not know: what finds the damage.

use super::super::networks::Networks;
use super::{Exact, Matcher, Prefixes};

/// What is wrong with it.
#[derive(Clone, Copy, Debug)]
pub(in super::super) enum Broken {
    NoRoutes,
    NoValues,
    NoNetworks,
    NoBeginnings,
    NoEndings,
    NothingAlways,
    NoGroups,
    ShortValuesOnly,
    NothingElseIsChecked,
}

impl Broken {
    pub(in super::super) const ALL: [Self; 9] = [
        Self::NoRoutes,
        Self::NoValues,
        Self::NoNetworks,
        Self::NoBeginnings,
        Self::NoEndings,
        Self::NothingAlways,
        Self::NoGroups,
        Self::ShortValuesOnly,
        Self::NothingElseIsChecked,
    ];
}

impl Matcher {
    /// The most entries that can turn up by one exact value or one route, or have to be checked always.
    pub(in super::super) fn most_filed_together(&self) -> usize {
        let values = self
            .exact
            .iter()
            .flat_map(|(_, exact)| exact.values.values());
        let routes = self.tree.values().map(|named| &named.entries);
        let all = values.chain(routes).map(Vec::len);
        all.chain([self.always.len()]).max().unwrap_or(0)
    }

    pub(in super::super) fn damage(&mut self, broken: Broken) {
        match broken {
            Broken::NoRoutes => self.needs.path = false,
            Broken::NoValues => self
                .exact
                .iter_mut()
                .for_each(|(_, exact)| *exact = Exact::default()),
            Broken::NoNetworks => self.networks = Networks::new([]),
            Broken::NoBeginnings => self
                .globs
                .iter_mut()
                .for_each(|(_, ends)| ends.before = Prefixes::new()),
            Broken::NoEndings => self
                .globs
                .iter_mut()
                .for_each(|(_, ends)| ends.after = Prefixes::new()),
            Broken::NothingAlways => self.always.clear(),
            Broken::NoGroups => self
                .limits
                .iter_mut()
                .for_each(|standing| standing.group = None),
            Broken::ShortValuesOnly => {
                self.exact
                    .iter_mut()
                    .for_each(|(_, exact)| exact.longest = exact.longest.saturating_sub(1));
            }
            Broken::NothingElseIsChecked => self
                .entries
                .iter_mut()
                .for_each(|entry| entry.rest = Box::default()),
        }
    }
}
