//! Matches a request under every reading of its path: limits and denials apply under any, exemptions only under all.
//!
//! Kept apart, because most requests have one reading and need none of this. Must not know: indexes, conditions.

use super::super::matched_rules::{ListVerdict, MatchedRules, Readings};
use super::super::path::{self, NormalizedPath, Unreadable};
use super::super::{credentials, host};
use super::Matcher;
use super::request_view::{RawAttributes, RequestView};
use crate::attributes::{Attribute, Attributes};
use crate::model::{PathCase, PathSettings};

/// The union of what each reading matched.
struct Union {
    denied: Option<usize>,
    is_exempt: bool,
    route: Option<usize>,
}

impl Matcher {
    /// Matches a request with any path and host.
    #[cold]
    #[inline(never)]
    pub(super) fn match_readings(
        &self,
        request: &dyn Attributes,
        raw: RawAttributes<'_>,
        matched: &mut MatchedRules,
    ) {
        let mut readings = std::mem::take(&mut matched.readings);
        matched.is_plain = false;
        let is_sent = request.get(&Attribute::Path).is_some();
        matched.unreadable = readings.read(raw, is_sent, self.paths);
        if matched.unreadable.is_none() {
            self.match_all(request, raw, &mut readings, matched);
        }
        matched.readings = readings;
    }

    fn match_all(
        &self,
        request: &dyn Attributes,
        raw: RawAttributes<'_>,
        readings: &mut Readings,
        matched: &mut MatchedRules,
    ) {
        let host = raw.host.map(|_| readings.host.as_slice());
        let value = |index: usize| request.get(self.attributes.get(index)?);
        let credentials = self.credentials.and_then(|index| {
            let canonical = value(index).and_then(credentials::canonical);
            Some((index, canonical?))
        });
        let view = |path| {
            let path = Option::map(path, NormalizedPath::new);
            let mut view =
                RequestView::new(request, &self.attributes, self.needed, raw, path, host);
            if let Some((index, canonical)) = &credentials {
                view.set_other(*index, canonical);
            }
            view
        };
        let (rules, routes) = (&mut readings.rules, &mut readings.routes);
        let mut union = Union {
            denied: None,
            is_exempt: true,
            route: None,
        };
        let mut add = |matcher: &Self, path| {
            matched.list_verdict = ListVerdict::Limits;
            matched.rules.clear();
            matched.route = None;
            matcher.look_up(&mut view(path), matched);
            routes.push(matched.route);
            union.add(self, matched, rules);
        };
        if readings.paths.len() == 0 {
            add(self, None);
        }
        for path in readings.paths.iter() {
            add(self, Some(path));
        }
        for path in readings.folded.iter() {
            match &self.folded {
                Some(folded) => add(folded, Some(path)),
                // The rules are the same, so a path that was matched already adds nothing.
                None if readings.paths.iter().any(|known| known == path) => {}
                None => add(self, Some(path)),
            }
        }
        matched.list_verdict = match union.denied {
            Some(index) => ListVerdict::Denied(index),
            None if union.is_exempt => ListVerdict::Exempt,
            None => ListVerdict::Limits,
        };
        matched.route = union.route;
        std::mem::swap(&mut matched.rules, rules);
    }
}

impl Union {
    fn add(&mut self, matcher: &Matcher, matched: &MatchedRules, rules: &mut Vec<usize>) {
        match matched.list_verdict {
            ListVerdict::Denied(index) => {
                self.denied = Some(self.denied.map_or(index, |first| first.min(index)));
                self.is_exempt = false;
            }
            ListVerdict::Exempt => return self.add_route(matcher, matched),
            ListVerdict::Limits => self.is_exempt = false,
        }
        for rule in matched.rules() {
            if let Err(position) = rules.binary_search(rule) {
                rules.insert(position, *rule);
            }
        }
        self.add_route(matcher, matched);
    }

    /// Keeps the most specific route.
    fn add_route(&mut self, matcher: &Matcher, matched: &MatchedRules) {
        let rank = |route: Option<usize>| matcher.ranks.get(route?);
        if let Some(other) = rank(matched.route)
            && rank(self.route).is_none_or(|own| other < own)
        {
            self.route = matched.route;
        }
    }
}

impl Readings {
    /// Reads path and host; `Some` if one of them cannot be read.
    fn read(
        &mut self,
        raw: RawAttributes<'_>,
        is_sent: bool,
        settings: PathSettings,
    ) -> Option<Unreadable> {
        self.clear();
        if let Some(raw) = raw.host {
            let Some(host) = host::canonical(raw) else {
                return Some(Unreadable::InvalidHost);
            };
            self.host.extend_from_slice(&host);
            self.host.make_ascii_lowercase();
        }
        let sent = raw.path?;
        let path = path::without_query(sent);
        let (features, unreadable) = path::inspect(path);
        // A template of the transport is not what a client wrote.
        if is_sent && unreadable.is_some() {
            return unreadable;
        }
        self.paths.read(path, features, settings.parameters);
        path::canonical_reader(settings.parameters).write(path, &mut self.canonical);
        if self.canonical.len() > 1 && self.canonical.ends_with(b"/") {
            self.canonical.pop();
        }
        match settings.case {
            PathCase::Sensitive => {}
            PathCase::Insensitive => {
                self.paths.make_lowercase();
                self.canonical.make_ascii_lowercase();
            }
            PathCase::Any => {
                for path in self.paths.iter() {
                    self.folded.push(|folded| {
                        let start = folded.len();
                        folded.extend_from_slice(path);
                        if let Some(fresh) = folded.get_mut(start..) {
                            fresh.make_ascii_lowercase();
                        }
                    });
                }
            }
        }
        None
    }
}
