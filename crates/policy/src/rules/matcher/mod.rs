//! Which limits and list entries a request falls under, without asking each of them.
//!
//! Every entry is filed under one of its conditions, the one that it shares with the fewest others: a route, an exact
//! value, a network, or the literal end of a glob. A request is looked up once in each of these, and only the entries that
//! turn up have their other conditions checked. Entries without such a condition are checked always. So the work grows with
//! how many attributes are looked up and how many entries turn up, not with how many there are.
//! Must not know: quotas, keys.

mod build;
mod condition;
mod look;

#[cfg(test)]
mod broken;

#[cfg(test)]
pub(super) use broken::Broken;

use std::collections::HashMap;

use foldhash::fast::FixedState;

use super::found::{Listed, MOST_METERS, MatchedRules};
use super::networks::Networks;
use super::prefixes::Prefixes;
use super::tree::Tree;
use crate::attributes::{Attribute, Attributes};
use condition::Check;
use look::{Look, Needs, Raw, Room, Subject};

/// All conditions of a policy.
#[derive(Debug)]
pub(super) struct Matcher {
    /// What [`Subject::Other`] means.
    attributes: Box<[Attribute]>,
    needs: Needs,
    entries: Box<[Entry]>,
    limits: Box<[Standing]>,
    /// The templates as they are written.
    templates: Box<[Box<str>]>,
    always: Vec<usize>,
    tree: Tree<Named>,
    exact: Vec<(Subject, Exact)>,
    networks: Networks<Vec<usize>>,
    globs: Vec<(Subject, Ends)>,
}

/// What has conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Deny(usize),
    Exempt,
    Limit(usize),
}

/// A target, and its conditions but for the one that it is filed under.
#[derive(Debug)]
struct Entry {
    target: Target,
    rest: Box<[Check]>,
}

/// How a limit stands to others.
#[derive(Clone, Copy, Debug)]
struct Standing {
    /// The group of which only the narrowest applies.
    group: Option<usize>,
    /// How many conditions it has.
    conditions: usize,
    /// How many of its meters must be asked.
    asked: usize,
}

/// A route of the tree: its template, and what is filed under it.
#[derive(Debug)]
struct Named {
    template: usize,
    entries: Vec<usize>,
}

/// What is filed under the values of one attribute.
#[derive(Debug, Default)]
struct Exact {
    values: HashMap<Box<[u8]>, Vec<usize>, FixedState>,
    /// A longer value is not worth hashing, however long it is.
    longest: usize,
}

/// What is filed under how values of one attribute begin or end.
#[derive(Debug)]
struct Ends {
    before: Prefixes<usize>,
    after: Prefixes<usize>,
}

impl Matcher {
    /// Finds everything that a request falls under.
    pub(super) fn find(&self, request: &dyn Attributes, found: &mut MatchedRules) {
        found.clear();
        let raw = Raw::of(request, self.needs);
        match Look::as_it_is(request, &self.attributes, self.needs, raw) {
            Some(mut look) => self.look_up(&mut look, found),
            None => self.find_rewritten(request, raw, found),
        }
        self.settle(found);
    }

    /// The template that was found, as it is written.
    pub(super) fn template(&self, found: &MatchedRules) -> Option<&str> {
        self.templates.get(found.route?).map(|template| &**template)
    }

    /// Apart, because the room for rewriting takes a while to clear and most requests do not need it.
    #[cold]
    #[inline(never)]
    fn find_rewritten(&self, request: &dyn Attributes, raw: Raw<'_>, found: &mut MatchedRules) {
        let mut room = Room::new();
        let (mut look, unreadable) =
            Look::rewritten(request, &self.attributes, self.needs, raw, &mut room);
        found.unreadable = unreadable;
        self.look_up(&mut look, found);
    }

    fn look_up<'a>(&'a self, look: &mut Look<'a>, found: &mut MatchedRules) {
        // Routes come first: the first of them is the one that conditions on `route` see.
        if !self.tree.is_empty()
            && let Some(path) = look.path
        {
            self.tree.visit(path, &mut |named| {
                if found.route.is_none() {
                    found.route = Some(named.template);
                    let text = self.templates.get(named.template);
                    look.route = look.route.or(text.map(|text| text.as_bytes()));
                }
                self.take_all(&named.entries, look, found);
            });
        }
        self.take_all(&self.always, look, found);
        for (subject, exact) in &self.exact {
            if let Some(value) = look.value(*subject)
                && value.len() <= exact.longest
                && let Some(entries) = exact.values.get(value)
            {
                self.take_all(entries, look, found);
            }
        }
        if !self.networks.is_empty()
            && let Some(ip) = look.ip
        {
            for entries in self.networks.around(ip) {
                self.take_all(entries, look, found);
            }
        }
        for (subject, ends) in &self.globs {
            if let Some(value) = look.value(*subject) {
                // A path's slash at the end may be what a glob goes on with.
                let full = match (subject, look.path) {
                    (Subject::Path, Some(path)) => path.full(),
                    _ => value,
                };
                ends.before
                    .visit(full.iter().copied(), |entry| self.take(*entry, look, found));
                ends.after.visit(value.iter().rev().copied(), |entry| {
                    self.take(*entry, look, found);
                });
            }
        }
    }

    fn take_all(&self, entries: &[usize], look: &mut Look<'_>, found: &mut MatchedRules) {
        entries
            .iter()
            .for_each(|entry| self.take(*entry, look, found));
    }

    /// Adds an entry's target if its other conditions hold.
    fn take(&self, entry: usize, look: &mut Look<'_>, found: &mut MatchedRules) {
        let Some(entry) = self.entries.get(entry) else {
            return;
        };
        // What could not change anything any more need not be checked.
        let matters = match (found.listed, entry.target) {
            (Listed::Denied(first), Target::Deny(index)) => index < first,
            (Listed::Denied(_), _) => false,
            (Listed::Exempt, target) => matches!(target, Target::Deny(_)),
            (Listed::Limits, _) => true,
        };
        if !matters || !entry.rest.iter().all(|check| check.holds(look)) {
            return;
        }
        match entry.target {
            Target::Deny(index) => found.listed = Listed::Denied(index),
            Target::Exempt => found.listed = Listed::Exempt,
            Target::Limit(index) => self.add(index, found),
        }
    }

    /// Adds a limit, unless a narrower one of its group is there.
    fn add(&self, index: usize, found: &mut MatchedRules) {
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
    fn settle(&self, found: &mut MatchedRules) {
        if found.listed != Listed::Limits {
            found.len = 0;
            found.more_than_fit = false;
            return;
        }
        let mut asked = 0;
        let fit = found.rules().iter().take_while(|index| {
            asked += self
                .limits
                .get(**index)
                .map_or(0, |standing| standing.asked);
            asked <= MOST_METERS
        });
        let fit = fit.count();
        found.more_than_fit |= fit < found.len;
        found.len = fit;
    }
}
