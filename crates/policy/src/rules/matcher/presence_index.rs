//! Finds entries by the attributes that a request has, whatever their values.
//!
//! A few attributes are asked for one by one. Of a family with many, the names that the request has are looked up, so
//! that the work does not grow with the policy. Must not know: conditions, what entries are.

use std::collections::{BTreeMap, HashMap};

use foldhash::fast::FixedState;

use super::request_view::{RequestView, Subject};
use crate::attributes::{Attribute, AttributeFamily};

/// The most attributes of one family that are asked for one by one.
const MAX_ASKED: usize = 4;

/// The entries that need an attribute.
type NeededBy = (Subject, Vec<usize>);

/// The entries indexed by the presence of an attribute.
#[derive(Debug, Default)]
pub(super) struct PresenceIndex {
    /// Attributes that are asked for one by one.
    asked: Vec<NeededBy>,
    /// Families with many attributes, by name.
    families: BTreeMap<AttributeFamily, HashMap<Box<str>, NeededBy, FixedState>>,
}

impl PresenceIndex {
    /// The index of these entries. `attributes` has the names of [`Subject::Other`].
    pub(super) fn new(entries: BTreeMap<Subject, Vec<usize>>, attributes: &[Attribute]) -> Self {
        let family = |subject: Subject| match subject {
            Subject::Other(index) => attributes.get(index).and_then(Attribute::family),
            _ => None,
        };
        let mut sizes: BTreeMap<AttributeFamily, usize> = BTreeMap::new();
        for (name, _) in entries.keys().filter_map(|subject| family(*subject)) {
            *sizes.entry(name).or_default() += 1;
        }
        let mut index = Self::default();
        for (subject, entries) in entries {
            match family(subject) {
                Some((family, name)) if sizes.get(&family).is_some_and(|n| *n > MAX_ASKED) => {
                    let names = index.families.entry(family).or_default();
                    names.insert(name.into(), (subject, entries));
                }
                _ => index.asked.push((subject, entries)),
            }
        }
        index
    }

    /// Calls `found` with the entries of each attribute that the request has.
    #[inline]
    pub(super) fn visit<'a>(
        &'a self,
        view: &mut RequestView<'a>,
        mut found: impl FnMut(&'a [usize], &mut RequestView<'a>),
    ) {
        for (subject, entries) in &self.asked {
            if view.has(*subject) {
                found(entries, view);
            }
        }
        for (family, names) in &self.families {
            let request = view.request();
            let mut visit = |(subject, entries): &'a NeededBy| {
                if view.has(*subject) {
                    found(entries, view);
                }
            };
            let is_listed = request.visit_names(*family, &mut |name| {
                if let Some(needed_by) = names.get(name) {
                    visit(needed_by);
                }
            });
            if !is_listed {
                names.values().for_each(visit);
            }
        }
    }
}

#[cfg(test)]
impl PresenceIndex {
    pub(super) fn forget_names(&mut self) {
        self.families.clear();
    }

    pub(super) fn largest_bucket(&self) -> usize {
        let named = self.families.values().flat_map(HashMap::values);
        let all = self.asked.iter().chain(named);
        all.map(|(_, entries)| entries.len()).max().unwrap_or(0)
    }
}
