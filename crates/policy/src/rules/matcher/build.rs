//! Builds the index: selects the condition that each entry is indexed by.
//!
//! Must not know: how requests are looked up.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use super::super::RuleErrorKind;
use super::super::credentials;
use super::super::draft::{DraftLimit, RuleError, RuleOrigin, RulesDraft};
use super::super::network_index::NetworkIndex;
use super::super::prefix_tree::PrefixTree;
use super::super::route_tree::{RoutePattern, RouteTree};
use super::condition::{CompiledCondition, CompiledTest, has_uppercase};
use super::index_terms::{IndexTerm, index_terms};
use super::needed_attributes::{attributes, own_subject, skipped_without};
use super::presence_index::PresenceIndex;
use super::request_view::{NeededAttributes, Subject};
use super::{ExactIndex, GlobIndex, LimitPrecedence, Matcher, RouteEntry, RuleEntry, RuleTarget};
use crate::attributes::Attribute;
use crate::model::{Condition, GroupSelection, IpNet, Match, Mode, PathCase, PathSettings, Test};

/// A compiled condition and the index terms that cover it, if there are any.
struct IndexedCondition {
    check: CompiledCondition,
    terms: Option<Vec<IndexTerm>>,
    is_claim: bool,
    /// Whether the limit's key needs it. Then it is only an index: the key is checked when it is built.
    is_of_key: bool,
}

impl Matcher {
    /// Builds the index of a draft's conditions.
    pub(in super::super) fn new(draft: &RulesDraft) -> Result<Self, Vec<RuleError>> {
        let case = draft.paths.case;
        let (mut matcher, has_uppercase) = Self::build(draft, case == PathCase::Insensitive)?;
        if case == PathCase::Any && has_uppercase {
            let (mut folded, _) = Self::build(draft, true)?;
            // Both have the same templates, except those that differ only by case: then the first is in both.
            let numbers: HashMap<&str, usize> = matcher
                .templates
                .iter()
                .map(|text| &**text)
                .zip(0..)
                .collect();
            for route in folded.routes.values_mut() {
                let text = folded.templates.get(route.template).map(|text| &**text);
                let number = text.and_then(|text| numbers.get(text));
                route.template = number.copied().unwrap_or(usize::MAX);
            }
            folded.templates = matcher.templates.clone();
            matcher.folded = Some(Box::new(folded));
            matcher.has_one_reading = false;
        }
        Ok(matcher)
    }

    /// Builds one index, and says whether its paths have upper-case letters.
    fn build(draft: &RulesDraft, fold: bool) -> Result<(Self, bool), Vec<RuleError>> {
        let mut errors = Vec::new();
        let sources: Vec<(RuleOrigin, &Match)> = sources(draft).collect();
        let attributes = attributes(draft, &sources);
        let mut builder = Builder::new(draft, &attributes, fold);
        let mut compiled: Vec<(RuleOrigin, Vec<IndexedCondition>)> = Vec::new();
        for (origin, matching) in &sources {
            let conditions = matching.conditions.iter().filter_map(|condition| {
                builder
                    .compile(&condition.value)
                    .map_err(|kind| {
                        errors.push(RuleError {
                            origin: *origin,
                            kind,
                        });
                    })
                    .ok()
            });
            let mut conditions: Vec<IndexedCondition> = conditions.collect();
            if let RuleOrigin::Limit(index) = origin {
                let limit = draft.limits.get(*index);
                conditions.extend(builder.key_conditions(*index, limit));
            }
            compiled.push((*origin, conditions));
        }
        for (index, template) in draft.routes.iter().enumerate() {
            match RoutePattern::new(&template.0, fold) {
                Some(route) => builder.add_template(&route, &template.0),
                None => errors.push(RuleError {
                    origin: RuleOrigin::Route(index),
                    kind: RuleErrorKind::Segments(template.clone()),
                }),
            }
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        let shared = count_terms(&compiled);
        for (origin, conditions) in compiled {
            builder.add_entry(origin, conditions, &shared);
        }
        let has_uppercase = builder.has_uppercase;
        Ok((builder.finish(), has_uppercase))
    }
}

/// All conditions of the draft, in file order.
fn sources(draft: &RulesDraft) -> impl Iterator<Item = (RuleOrigin, &Match)> {
    let limits = draft.limits.iter().enumerate();
    let exempt = draft.exempt.iter().enumerate();
    let deny = draft.deny.iter().enumerate();
    limits
        .map(|(index, limit)| (RuleOrigin::Limit(index), &limit.matching))
        .chain(exempt.map(|(index, matching)| (RuleOrigin::Exempt(index), matching)))
        .chain(deny.map(|(index, rule)| (RuleOrigin::Deny(index), &rule.matching)))
}

/// The number of entries per term.
fn count_terms(compiled: &[(RuleOrigin, Vec<IndexedCondition>)]) -> HashMap<IndexTerm, usize> {
    let mut counts = HashMap::new();
    for condition in compiled.iter().flat_map(|(_, conditions)| conditions) {
        for term in condition.terms.iter().flatten() {
            *counts.entry(term.clone()).or_default() += 1;
        }
    }
    counts
}

struct Builder<'a> {
    attributes: &'a [Attribute],
    subjects: HashMap<&'a Attribute, Subject>,
    needs: NeededAttributes,
    paths: PathSettings,
    /// Whether paths are compared in lower case.
    fold: bool,
    has_uppercase: bool,
    credentials: Option<usize>,
    /// How specific each template is.
    specificities: Vec<Vec<u8>>,
    entries: Vec<RuleEntry>,
    limits: Vec<LimitPrecedence>,
    templates: Vec<Box<str>>,
    always: Vec<usize>,
    unconditional: Vec<usize>,
    present: BTreeMap<Subject, Vec<usize>>,
    tree: RouteTree<RouteEntry>,
    exact: BTreeMap<Subject, ExactIndex>,
    networks: BTreeMap<IpNet, Vec<usize>>,
    globs: BTreeMap<Subject, GlobIndex>,
}

impl<'a> Builder<'a> {
    fn new(draft: &RulesDraft, attributes: &'a [Attribute], fold: bool) -> Self {
        let others = attributes.iter().enumerate();
        Self {
            attributes,
            subjects: others
                .map(|(index, attribute)| (attribute, Subject::Other(index)))
                .collect(),
            needs: NeededAttributes {
                path: draft.keys_use(&Attribute::Path),
                host: draft.keys_use(&Attribute::Host),
                ..NeededAttributes::default()
            },
            paths: draft.paths,
            fold,
            has_uppercase: false,
            credentials: None,
            specificities: Vec::new(),
            entries: Vec::new(),
            limits: limit_precedences(draft),
            templates: Vec::new(),
            always: Vec::new(),
            unconditional: Vec::new(),
            present: BTreeMap::new(),
            tree: RouteTree::new(),
            exact: BTreeMap::new(),
            networks: BTreeMap::new(),
            globs: BTreeMap::new(),
        }
    }

    fn compile(&mut self, condition: &Condition) -> Result<IndexedCondition, RuleErrorKind> {
        let attribute = &condition.attribute;
        let subject = own_subject(attribute)
            .or_else(|| self.subjects.get(attribute).copied())
            // Every attribute of every condition is in the list.
            .unwrap_or(Subject::Other(usize::MAX));
        let written = match credentials::is_credentials(attribute) {
            true => {
                let written = credentials::canonical_test(&condition.test);
                if let (Cow::Owned(_), Subject::Other(index)) = (&written, subject) {
                    self.credentials = Some(index);
                }
                written
            }
            false => Cow::Borrowed(&condition.test),
        };
        let test = CompiledTest::new(subject, &written, self.fold)?;
        self.mark_needed(subject, &condition.test);
        self.has_uppercase |= subject == Subject::Path && has_uppercase(&condition.test);
        let mut terms = index_terms(subject, &written, self.fold)?;
        // A look-up reads the attribute of every request, and to read a claim a signature may have to be verified.
        let is_claim = matches!(attribute, Attribute::Claim(_));
        terms.take_if(|_| is_claim);
        if let Some(terms) = &mut terms {
            terms.sort_unstable();
            terms.dedup();
        }
        Ok(IndexedCondition {
            check: CompiledCondition { subject, test },
            terms,
            is_claim,
            is_of_key: false,
        })
    }

    /// What a limit's key needs to be present, as conditions to index the limit by.
    fn key_conditions(&self, index: usize, limit: Option<&DraftLimit>) -> Vec<IndexedCondition> {
        // A limit replaces wider ones of its group even if it is skipped itself.
        let has_group = |limits: &LimitPrecedence| limits.group.is_some();
        if self.limits.get(index).is_none_or(has_group) {
            return Vec::new();
        }
        let attributes = limit.into_iter().flat_map(skipped_without);
        let subjects = attributes.filter_map(|attribute| self.subjects.get(attribute));
        let condition = |subject: &Subject| IndexedCondition {
            check: CompiledCondition {
                subject: *subject,
                test: CompiledTest::Present,
            },
            terms: Some(vec![IndexTerm::Present(*subject)]),
            is_claim: false,
            is_of_key: true,
        };
        subjects.map(condition).collect()
    }

    fn mark_needed(&mut self, subject: Subject, test: &Test) {
        match (subject, test) {
            (_, Test::Not(inner)) => self.mark_needed(subject, inner),
            (_, Test::Route(templates)) => {
                self.needs.path = true;
                for template in templates {
                    if let Some(route) = RoutePattern::new(&template.0, self.fold) {
                        self.add_template(&route, &template.0);
                    }
                }
            }
            (Subject::Ip, _) => self.needs.ip = true,
            (_, Test::Within(_)) => self.needs.ip = true,
            (Subject::Path, _) => self.needs.path = true,
            (Subject::Host, _) => self.needs.host = true,
            (Subject::Route, _) => self.needs.route = true,
            (Subject::Other(_), _) => {}
        }
    }

    /// Adds a route. Of equivalent templates, the first names the route.
    fn add_template(&mut self, route: &RoutePattern, template: &str) {
        self.needs.path = true;
        self.has_uppercase |= route.has_uppercase();
        let (templates, specificities) = (&mut self.templates, &mut self.specificities);
        self.tree.value_mut(route, || {
            templates.push(template.into());
            specificities.push(route.specificity());
            RouteEntry {
                template: templates.len() - 1,
                entries: Vec::new(),
            }
        });
    }

    /// Adds an entry under the condition that it shares with the fewest other entries.
    fn add_entry(
        &mut self,
        origin: RuleOrigin,
        mut conditions: Vec<IndexedCondition>,
        shared: &HashMap<IndexTerm, usize>,
    ) {
        if let RuleOrigin::Limit(index) = origin
            && conditions.is_empty()
            && self
                .limits
                .get(index)
                .is_some_and(|one| one.group.is_none())
        {
            return self.unconditional.push(index);
        }
        let entry = self.entries.len();
        let crowd = |terms: &Vec<IndexTerm>| {
            let counts = terms.iter().filter_map(|term| shared.get(term)).copied();
            counts.max().unwrap_or(0)
        };
        let best = conditions
            .iter()
            .enumerate()
            .filter_map(|(index, condition)| {
                let terms = condition.terms.as_ref()?;
                Some((crowd(terms), lookup_cost(&condition.check.test), index))
            })
            .min();
        match best {
            None => self.always.push(entry),
            Some((_, _, index)) => {
                let terms = conditions
                    .get_mut(index)
                    .and_then(|condition| condition.terms.take());
                terms
                    .into_iter()
                    .flatten()
                    .for_each(|term| self.index_entry(term, entry));
                // The prefix or suffix of a glob is only a part of it, so the glob is checked again. All other
                // conditions are proved by the lookup.
                let is_glob = |condition: &IndexedCondition| {
                    matches!(condition.check.test, CompiledTest::Glob(_))
                };
                if !conditions.get(index).is_some_and(is_glob) {
                    conditions.remove(index);
                }
            }
        }
        // Claims are read last, only if all else matches.
        conditions.sort_by_key(|condition| condition.is_claim);
        let target = match origin {
            RuleOrigin::Deny(index) => RuleTarget::Deny(index),
            RuleOrigin::Limit(index) => RuleTarget::Limit(index),
            RuleOrigin::Exempt(_) | RuleOrigin::Route(_) | RuleOrigin::Priority(_) => {
                RuleTarget::Exempt
            }
        };
        self.entries.push(RuleEntry {
            target,
            other_conditions: conditions
                .into_iter()
                .filter(|condition| !condition.is_of_key)
                .map(|condition| condition.check)
                .collect(),
        });
    }

    fn index_entry(&mut self, term: IndexTerm, entry: usize) {
        match term {
            IndexTerm::Route(route) => {
                let make = || RouteEntry {
                    template: usize::MAX,
                    entries: Vec::new(),
                };
                // The route was added when its condition was compiled.
                if let Some(named) = self.tree.value_mut(&route, make) {
                    named.entries.push(entry);
                }
            }
            IndexTerm::Exact(subject, value) => {
                let exact = self.exact.entry(subject).or_default();
                exact.longest = exact.longest.max(value.len());
                exact.values.entry(value).or_default().push(entry);
            }
            IndexTerm::Present(subject) => self.present.entry(subject).or_default().push(entry),
            IndexTerm::Within(network) => self.networks.entry(network).or_default().push(entry),
            IndexTerm::Prefix(subject, text) => {
                self.glob_index(subject).by_prefix.add(&text, entry);
            }
            IndexTerm::Suffix(subject, mut text) => {
                text.reverse();
                self.glob_index(subject).by_suffix.add(&text, entry);
            }
        }
    }

    fn glob_index(&mut self, subject: Subject) -> &mut GlobIndex {
        self.globs.entry(subject).or_insert_with(|| GlobIndex {
            by_prefix: PrefixTree::new(),
            by_suffix: PrefixTree::new(),
        })
    }

    fn finish(self) -> Matcher {
        let mut order: Vec<usize> = (0..self.templates.len()).collect();
        order.sort_by_key(|index| self.specificities.get(*index));
        let mut ranks = vec![0; order.len()];
        for (rank, index) in order.into_iter().enumerate() {
            if let Some(place) = ranks.get_mut(index) {
                *place = rank;
            }
        }
        let NeededAttributes {
            ip,
            path,
            host,
            route,
        } = self.needs;
        let needs_attributes = ip || path || host || route || self.credentials.is_some();
        Matcher {
            is_unconditional: self.entries.is_empty() && !needs_attributes,
            unconditional: self.unconditional,
            present: PresenceIndex::new(self.present, self.attributes),
            credentials: self.credentials,
            has_one_reading: self.credentials.is_none(),
            attributes: self.attributes.into(),
            needed: self.needs,
            entries: self.entries.into(),
            limits: self.limits.into(),
            templates: self.templates.into(),
            ranks: ranks.into(),
            paths: self.paths,
            folded: None,
            unindexed: self.always,
            routes: self.tree,
            exact: self.exact.into_iter().collect(),
            networks: NetworkIndex::new(self.networks),
            globs: self.globs.into_iter().collect(),
        }
    }
}

fn limit_precedences(draft: &RulesDraft) -> Vec<LimitPrecedence> {
    let narrowest = |name: &str| {
        draft.groups.iter().position(|group| {
            *group.name.value == *name && group.apply == GroupSelection::Narrowest
        })
    };
    let limits = draft.limits.iter().map(|limit| {
        let is_enforced = limit.rule.mode == Mode::Enforce;
        LimitPrecedence {
            // Limits that are not enforced do not replace others. Otherwise a narrow limit in shadow mode, or switched
            // off, would exempt its requests from the wide limit.
            group: limit
                .group
                .as_deref()
                .and_then(narrowest)
                .filter(|_| is_enforced),
            conditions: limit.matching.conditions.len(),
        }
    });
    limits.collect()
}

/// Of two conditions with as many entries, the one with the cheaper lookup is used.
const fn lookup_cost(test: &CompiledTest) -> usize {
    match test {
        CompiledTest::Route(_) => 0,
        CompiledTest::OneOf(_) => 1,
        CompiledTest::Within(_) => 2,
        CompiledTest::Glob(_) => 3,
        CompiledTest::Present | CompiledTest::Absent | CompiledTest::Not(_) => 4,
    }
}
