//! Which limits and list entries a request falls under, without asking each of them.
//!
//! Every entry is filed under one of its conditions, the one that it shares with the fewest others: a route, an exact
//! value, a network, or the literal end of a glob. A request is looked up once in each of these, and only the entries that
//! turn up have their other conditions checked. Entries without such a condition are checked always. So the work grows with
//! how many attributes are looked up and how many entries turn up, not with how many there are.
//! Must not know: quotas, keys.

mod build;
mod condition;
mod request_view;

#[cfg(test)]
mod index_fault;

#[cfg(test)]
pub(super) use index_fault::IndexFault;

use std::collections::HashMap;

use foldhash::fast::FixedState;

use super::matched_rules::{ListVerdict, MAX_METERS, MatchedRules};
use super::network_index::NetworkIndex;
use super::prefix_tree::PrefixTree;
use super::route_tree::RouteTree;
use crate::attributes::{Attribute, Attributes};
use condition::CompiledCondition;
use request_view::{NeededAttributes, NormalizationBuffers, RawAttributes, RequestView, Subject};

/// All conditions of a policy.
#[derive(Debug)]
pub(super) struct Matcher {
    /// What [`Subject::Other`] means.
    attributes: Box<[Attribute]>,
    needed: NeededAttributes,
    entries: Box<[RuleEntry]>,
    limits: Box<[LimitPrecedence]>,
    /// The templates as they are written.
    templates: Box<[Box<str>]>,
    unindexed: Vec<usize>,
    routes: RouteTree<RouteEntry>,
    exact: Vec<(Subject, ExactIndex)>,
    networks: NetworkIndex<Vec<usize>>,
    globs: Vec<(Subject, GlobIndex)>,
}

/// What has conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RuleTarget {
    Deny(usize),
    Exempt,
    Limit(usize),
}

/// A target, and its conditions but for the one that it is filed under.
#[derive(Debug)]
struct RuleEntry {
    target: RuleTarget,
    other_conditions: Box<[CompiledCondition]>,
}

/// How a limit stands to others.
#[derive(Clone, Copy, Debug)]
struct LimitPrecedence {
    /// The group of which only the narrowest applies.
    group: Option<usize>,
    /// How many conditions it has.
    conditions: usize,
    /// How many of its meters must be asked.
    enforced_meters: usize,
}

/// A route of the tree: its template, and what is filed under it.
#[derive(Debug)]
struct RouteEntry {
    template: usize,
    entries: Vec<usize>,
}

/// What is filed under the values of one attribute.
#[derive(Debug, Default)]
struct ExactIndex {
    values: HashMap<Box<[u8]>, Vec<usize>, FixedState>,
    /// A longer value is not worth hashing, however long it is.
    longest: usize,
}

/// What is filed under how values of one attribute begin or end.
#[derive(Debug)]
struct GlobIndex {
    by_prefix: PrefixTree<usize>,
    by_suffix: PrefixTree<usize>,
}

impl Matcher {
    /// Finds everything that a request falls under.
    pub(super) fn match_rules(&self, request: &dyn Attributes, found: &mut MatchedRules) {
        found.clear();
        let raw = RawAttributes::of(request, self.needed);
        match RequestView::if_normalized(request, &self.attributes, self.needed, raw) {
            Some(mut look) => self.look_up(&mut look, found),
            None => self.match_normalized(request, raw, found),
        }
        self.apply_capacity(found);
    }

    /// The template that was found, as it is written.
    pub(super) fn template(&self, found: &MatchedRules) -> Option<&str> {
        self.templates.get(found.route?).map(|template| &**template)
    }

    /// Apart, because the room for rewriting takes a while to clear and most requests do not need it.
    #[cold]
    #[inline(never)]
    fn match_normalized(
        &self,
        request: &dyn Attributes,
        raw: RawAttributes<'_>,
        found: &mut MatchedRules,
    ) {
        let mut room = NormalizationBuffers::new();
        let (mut look, unreadable) =
            RequestView::normalized(request, &self.attributes, self.needed, raw, &mut room);
        found.is_uri_too_long = unreadable;
        self.look_up(&mut look, found);
    }

    fn look_up<'a>(&'a self, look: &mut RequestView<'a>, found: &mut MatchedRules) {
        // Routes come first: the first of them is the one that conditions on `route` see.
        if !self.routes.is_empty()
            && let Some(path) = look.path
        {
            self.routes.visit(path, &mut |named| {
                if found.route.is_none() {
                    found.route = Some(named.template);
                    let text = self.templates.get(named.template);
                    look.route = look.route.or(text.map(|text| text.as_bytes()));
                }
                self.add_all_matching(&named.entries, look, found);
            });
        }
        self.add_all_matching(&self.unindexed, look, found);
        for (subject, exact) in &self.exact {
            if let Some(value) = look.value(*subject)
                && value.len() <= exact.longest
                && let Some(entries) = exact.values.get(value)
            {
                self.add_all_matching(entries, look, found);
            }
        }
        if !self.networks.is_empty()
            && let Some(ip) = look.ip
        {
            for entries in self.networks.enclosing(ip) {
                self.add_all_matching(entries, look, found);
            }
        }
        for (subject, ends) in &self.globs {
            if let Some(value) = look.value(*subject) {
                // A path's slash at the end may be what a glob goes on with.
                let full = match (subject, look.path) {
                    (Subject::Path, Some(path)) => path.full(),
                    _ => value,
                };
                ends.by_prefix.visit(full.iter().copied(), |entry| {
                    self.add_if_matching(*entry, look, found)
                });
                ends.by_suffix.visit(value.iter().rev().copied(), |entry| {
                    self.add_if_matching(*entry, look, found);
                });
            }
        }
    }

    fn add_all_matching(
        &self,
        entries: &[usize],
        look: &mut RequestView<'_>,
        found: &mut MatchedRules,
    ) {
        entries
            .iter()
            .for_each(|entry| self.add_if_matching(*entry, look, found));
    }

    /// Adds an entry's target if its other conditions hold.
    fn add_if_matching(&self, entry: usize, look: &mut RequestView<'_>, found: &mut MatchedRules) {
        let Some(entry) = self.entries.get(entry) else {
            return;
        };
        // What could not change anything any more need not be checked.
        let matters = match (found.list_verdict, entry.target) {
            (ListVerdict::Denied(first), RuleTarget::Deny(index)) => index < first,
            (ListVerdict::Denied(_), _) => false,
            (ListVerdict::Exempt, target) => matches!(target, RuleTarget::Deny(_)),
            (ListVerdict::Limits, _) => true,
        };
        if !matters
            || !entry
                .other_conditions
                .iter()
                .all(|check| check.matches(look))
        {
            return;
        }
        match entry.target {
            RuleTarget::Deny(index) => found.list_verdict = ListVerdict::Denied(index),
            RuleTarget::Exempt => found.list_verdict = ListVerdict::Exempt,
            RuleTarget::Limit(index) => self.add_limit(index, found),
        }
    }

    /// Adds a limit, unless a narrower one of its group is there.
    fn add_limit(&self, index: usize, found: &mut MatchedRules) {
        if let Some(standing) = self.limits.get(index)
            && standing.group.is_some()
        {
            let other = found.rules().iter().copied().find_map(|other| {
                let rival = self.limits.get(other)?;
                (rival.group == standing.group).then_some((other, rival))
            });
            if let Some((other, rival)) = other {
                if (rival.conditions, index) >= (standing.conditions, other) {
                    return;
                }
                found.remove(other);
            }
        }
        found.insert(index);
    }

    /// What the lists have decided, limits do not; and what is more than fits is cut and said.
    fn apply_capacity(&self, found: &mut MatchedRules) {
        if found.list_verdict != ListVerdict::Limits {
            found.len = 0;
            found.is_truncated = false;
            return;
        }
        let mut asked = 0;
        let fit = found.rules().iter().take_while(|index| {
            asked += self
                .limits
                .get(**index)
                .map_or(0, |standing| standing.enforced_meters);
            asked <= MAX_METERS
        });
        let fit = fit.count();
        found.is_truncated |= fit < found.len;
        found.len = fit;
    }
}
