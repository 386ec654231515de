//! Matches a request against all limits and list entries, without evaluating each of them.
//!
//! Every entry is indexed by one of its conditions, the one that it shares with the fewest other entries: a route, an
//! exact value, a network, the prefix or suffix of a glob, or the presence of an attribute. A limit that is skipped
//! without an attribute of its key needs that attribute, as if a condition said so. A request is looked up once in each
//! index, and only the entries found have their other conditions evaluated. Limits without any condition always match;
//! other entries that have no such condition are always evaluated. So the work depends on the number of lookups and of
//! entries found, not on the number of entries. Must not know: quotas, how keys are built.

mod build;
mod condition;
mod index_terms;
mod needed_attributes;
mod presence_index;
mod readings;
mod request_view;

#[cfg(test)]
mod index_fault;

#[cfg(test)]
pub(super) use index_fault::IndexFault;

pub(super) use condition::{compile_glob_of, normalize_value_of};

use std::collections::HashMap;

use foldhash::fast::FixedState;

use super::matched_rules::{ListVerdict, MatchedRules};
use super::network_index::NetworkIndex;
use super::prefix_tree::PrefixTree;
use super::route_tree::RouteTree;
use crate::attributes::{Attribute, Attributes};
use crate::model::PathSettings;
use condition::CompiledCondition;
use presence_index::PresenceIndex;
use request_view::{NeededAttributes, RawAttributes, RequestView, Subject};

/// All conditions of a policy.
#[derive(Debug)]
pub(super) struct Matcher {
    /// The attributes of [`Subject::Other`].
    attributes: Box<[Attribute]>,
    /// The index of `header.authorization`, if a condition tests its value.
    credentials: Option<usize>,
    /// Whether a plain request has one reading: there is neither `credentials` nor `folded`.
    has_one_reading: bool,
    needed: NeededAttributes,
    entries: Box<[RuleEntry]>,
    limits: Box<[LimitPrecedence]>,
    /// The route templates as the policy writes them.
    templates: Box<[Box<str>]>,
    /// The rank of each template: the most specific first.
    ranks: Box<[usize]>,
    paths: PathSettings,
    /// The same rules for paths in lower case, if the policy has upper-case letters in paths and some servers ignore
    /// case.
    folded: Option<Box<Matcher>>,
    /// The limits without conditions, ascending.
    unconditional: Vec<usize>,
    /// Whether there is nothing but unconditional limits, and no attribute has to be read.
    is_unconditional: bool,
    unindexed: Vec<usize>,
    present: PresenceIndex,
    routes: RouteTree<RouteEntry>,
    exact: Vec<(Subject, ExactIndex)>,
    networks: NetworkIndex<Vec<usize>>,
    globs: Vec<(Subject, GlobIndex)>,
}

/// The rule that has the conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RuleTarget {
    Deny(usize),
    Exempt,
    Limit(usize),
}

/// A target and its conditions, except the one that it is indexed by.
#[derive(Debug)]
struct RuleEntry {
    target: RuleTarget,
    other_conditions: Box<[CompiledCondition]>,
}

/// The precedence of a limit in its group.
#[derive(Clone, Copy, Debug)]
struct LimitPrecedence {
    /// The group, if only its narrowest limit applies.
    group: Option<usize>,
    /// The number of its conditions.
    conditions: usize,
}

/// A route: its template, and the entries indexed by it.
#[derive(Debug)]
struct RouteEntry {
    template: usize,
    entries: Vec<usize>,
}

/// The entries indexed by the values of one attribute.
#[derive(Debug, Default)]
struct ExactIndex {
    values: HashMap<Box<[u8]>, Vec<usize>, FixedState>,
    /// Longer values are not hashed.
    longest: usize,
}

/// The entries indexed by prefixes and suffixes of one attribute.
#[derive(Debug)]
struct GlobIndex {
    by_prefix: PrefixTree<usize>,
    by_suffix: PrefixTree<usize>,
}

impl Matcher {
    /// Finds all rules that match a request under any reading of its path, and exemptions that match under all.
    pub(super) fn match_rules(&self, request: &dyn Attributes, matched: &mut MatchedRules) {
        matched.clear();
        if self.is_unconditional {
            return self.add_unconditional(matched);
        }
        let raw = RawAttributes::new(request, self.needed);
        let view = match self.has_one_reading {
            true => {
                let case = self.paths.case;
                RequestView::if_plain(request, &self.attributes, self.needed, raw, case)
            }
            false => None,
        };
        match view {
            Some(mut view) => self.look_up(&mut view, matched),
            None => self.match_readings(request, raw, matched),
        }
        if matched.list_verdict != ListVerdict::Limits {
            matched.rules.clear();
        }
    }

    /// Whether every limit matches every request, and no attribute has to be read for that.
    pub(super) const fn is_unconditional(&self) -> bool {
        self.is_unconditional
    }

    /// The matched template, as the policy writes it; the most specific one of all readings.
    pub(super) fn template(&self, matched: &MatchedRules) -> Option<&str> {
        self.template_at(matched.route?)
    }

    /// A template by its index.
    pub(super) fn template_at(&self, index: usize) -> Option<&str> {
        self.templates.get(index).map(|template| &**template)
    }

    fn look_up<'a>(&'a self, view: &mut RequestView<'a>, matched: &mut MatchedRules) {
        self.add_unconditional(matched);
        // Routes come first, because conditions on `route` use the first match.
        if !self.routes.is_empty()
            && let Some(path) = view.path
        {
            self.routes.visit(path, &mut |route_entry| {
                if matched.route.is_none() {
                    matched.route = Some(route_entry.template);
                    let text = self.templates.get(route_entry.template);
                    view.route = view.route.or(text.map(|text| text.as_bytes()));
                }
                self.add_all_matching(&route_entry.entries, view, matched);
            });
        }
        self.add_all_matching(&self.unindexed, view, matched);
        self.present.visit(view, |entries, view| {
            self.add_all_matching(entries, view, matched);
        });
        for (subject, exact) in &self.exact {
            if let Some(value) = view.value(*subject)
                && value.len() <= exact.longest
                && let Some(entries) = exact.values.get(value)
            {
                self.add_all_matching(entries, view, matched);
            }
        }
        if !self.networks.is_empty()
            && let Some(ip) = view.ip
        {
            for entries in self.networks.enclosing(ip) {
                self.add_all_matching(entries, view, matched);
            }
        }
        for (subject, index) in &self.globs {
            if let Some(value) = view.value(*subject) {
                // The trailing slash of a path may be part of the prefix of a glob.
                let full = match (subject, view.path) {
                    (Subject::Path, Some(path)) => path.full(),
                    _ => value,
                };
                index.by_prefix.visit(full.iter().copied(), |entry| {
                    self.add_if_matching(*entry, view, matched);
                });
                index.by_suffix.visit(value.iter().rev().copied(), |entry| {
                    self.add_if_matching(*entry, view, matched);
                });
            }
        }
    }

    /// They are few: a loop takes fewer instructions than a call of `memcpy`.
    #[inline]
    fn add_unconditional(&self, matched: &mut MatchedRules) {
        for index in &self.unconditional {
            matched.rules.push(*index);
        }
    }

    fn add_all_matching(
        &self,
        entries: &[usize],
        view: &mut RequestView<'_>,
        matched: &mut MatchedRules,
    ) {
        entries
            .iter()
            .for_each(|entry| self.add_if_matching(*entry, view, matched));
    }

    /// Adds the target of an entry if its other conditions match.
    fn add_if_matching(
        &self,
        entry: usize,
        view: &mut RequestView<'_>,
        matched: &mut MatchedRules,
    ) {
        let Some(entry) = self.entries.get(entry) else {
            return;
        };
        // Skip entries that cannot change the result.
        let matters = match (matched.list_verdict, entry.target) {
            (ListVerdict::Denied(first), RuleTarget::Deny(index)) => index < first,
            (ListVerdict::Denied(_), _) => false,
            (ListVerdict::Exempt, target) => matches!(target, RuleTarget::Deny(_)),
            (ListVerdict::Limits, _) => true,
        };
        if !matters
            || !entry
                .other_conditions
                .iter()
                .all(|check| check.matches(view))
        {
            return;
        }
        match entry.target {
            RuleTarget::Deny(index) => matched.list_verdict = ListVerdict::Denied(index),
            RuleTarget::Exempt => matched.list_verdict = ListVerdict::Exempt,
            RuleTarget::Limit(index) => self.add_limit(index, matched),
        }
    }

    /// Adds a limit, unless a narrower limit of its group is present.
    fn add_limit(&self, index: usize, matched: &mut MatchedRules) {
        if let Some(precedence) = self.limits.get(index)
            && precedence.group.is_some()
        {
            let other = matched.rules().iter().copied().find_map(|other| {
                let rival = self.limits.get(other)?;
                (rival.group == precedence.group).then_some((other, rival))
            });
            if let Some((other, rival)) = other {
                if (rival.conditions, index) >= (precedence.conditions, other) {
                    return;
                }
                matched.remove(other);
            }
        }
        matched.insert(index);
    }
}
