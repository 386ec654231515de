//! How a policy's conditions become an index: which condition each entry is filed under.
//!
//! Must not know: how requests are looked up.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use super::super::draft::{Draft, Origin, Unfit};
use super::super::networks::{self, Networks};
use super::super::prefixes::Prefixes;
use super::super::tree::{Route, Tree};
use super::super::{Role, Why};
use super::condition::{Asks, Check, exactly, pattern};
use super::look::{Needs, Subject};
use super::{Ends, Entry, Exact, Matcher, Named, Standing, Target};
use crate::attributes::Attribute;
use crate::model::{Apply, Condition, IpNet, Match, Mode, Test};

/// Something to file an entry under.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Term {
    Route(Route),
    Exactly(Subject, Box<[u8]>),
    Within(IpNet),
    Before(Subject, Box<[u8]>),
    After(Subject, Box<[u8]>),
}

/// A condition, compiled, and the terms that cover it, if there are such.
struct Compiled {
    check: Check,
    terms: Option<Vec<Term>>,
}

impl Matcher {
    /// The index of a draft's conditions.
    pub(in super::super) fn new(draft: &Draft) -> Result<Self, Vec<Unfit>> {
        let mut unfit = Vec::new();
        let sources: Vec<(Origin, &Match)> = sources(draft).collect();
        let attributes = attributes(&sources);
        let mut builder = Builder::new(draft, &attributes);
        let mut compiled: Vec<(Origin, Vec<Compiled>)> = Vec::new();
        for (origin, matching) in &sources {
            let conditions = matching.conditions.iter().filter_map(|condition| {
                builder
                    .compile(&condition.value)
                    .map_err(|why| {
                        unfit.push(Unfit {
                            origin: *origin,
                            why,
                        });
                    })
                    .ok()
            });
            compiled.push((*origin, conditions.collect()));
        }
        for (index, template) in draft.routes.iter().enumerate() {
            match Route::new(&template.0) {
                Some(route) => builder.name(&route, &template.0),
                None => unfit.push(Unfit {
                    origin: Origin::Route(index),
                    why: Why::Segments(template.clone()),
                }),
            }
        }
        if !unfit.is_empty() {
            return Err(unfit);
        }
        let shared = shared(&compiled);
        for (origin, conditions) in compiled {
            builder.file(origin, conditions, &shared);
        }
        Ok(builder.finish())
    }
}

/// Everything that has conditions, in the order of the file.
fn sources(draft: &Draft) -> impl Iterator<Item = (Origin, &Match)> {
    let limits = draft.limits.iter().enumerate();
    let exempt = draft.exempt.iter().enumerate();
    let deny = draft.deny.iter().enumerate();
    limits
        .map(|(index, limit)| (Origin::Limit(index), &limit.matching))
        .chain(exempt.map(|(index, matching)| (Origin::Exempt(index), matching)))
        .chain(deny.map(|(index, rule)| (Origin::Deny(index), &rule.matching)))
}

/// The attributes that have no subject of their own, those that most conditions ask for first.
fn attributes(sources: &[(Origin, &Match)]) -> Box<[Attribute]> {
    let mut counts: BTreeMap<&Attribute, usize> = BTreeMap::new();
    for (_, matching) in sources {
        for condition in &matching.conditions {
            *counts.entry(&condition.value.attribute).or_default() += 1;
        }
    }
    let mut list: Vec<(&Attribute, usize)> = counts.into_iter().collect();
    list.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    list.into_iter()
        .map(|(attribute, _)| attribute.clone())
        .filter(|attribute| own_subject(attribute).is_none())
        .collect()
}

const fn own_subject(attribute: &Attribute) -> Option<Subject> {
    match attribute {
        Attribute::Ip => Some(Subject::Ip),
        Attribute::Path => Some(Subject::Path),
        Attribute::Host => Some(Subject::Host),
        Attribute::Route => Some(Subject::Route),
        _ => None,
    }
}

/// How many entries could be filed under each term.
fn shared(compiled: &[(Origin, Vec<Compiled>)]) -> HashMap<Term, usize> {
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
    needs: Needs,
    entries: Vec<Entry>,
    limits: Vec<Standing>,
    templates: Vec<Box<str>>,
    always: Vec<usize>,
    tree: Tree<Named>,
    exact: BTreeMap<Subject, Exact>,
    networks: BTreeMap<IpNet, Vec<usize>>,
    globs: BTreeMap<Subject, Ends>,
}

impl<'a> Builder<'a> {
    fn new(draft: &Draft, attributes: &'a [Attribute]) -> Self {
        let others = attributes.iter().enumerate();
        Self {
            attributes,
            subjects: others
                .map(|(index, attribute)| (attribute, Subject::Other(index)))
                .collect(),
            needs: Needs::default(),
            entries: Vec::new(),
            limits: standings(draft),
            templates: Vec::new(),
            always: Vec::new(),
            tree: Tree::new(),
            exact: BTreeMap::new(),
            networks: BTreeMap::new(),
            globs: BTreeMap::new(),
        }
    }

    fn compile(&mut self, condition: &Condition) -> Result<Compiled, Why> {
        let attribute = &condition.attribute;
        let subject = own_subject(attribute)
            .or_else(|| self.subjects.get(attribute).copied())
            // Every attribute of every condition is in the list.
            .unwrap_or(Subject::Other(usize::MAX));
        let asks = Asks::new(subject, &condition.test)?;
        self.need(subject, &condition.test);
        let mut terms = terms(subject, &condition.test)?;
        if let Some(terms) = &mut terms {
            terms.sort_unstable();
            terms.dedup();
        }
        Ok(Compiled {
            check: Check { subject, asks },
            terms,
        })
    }

    fn need(&mut self, subject: Subject, test: &Test) {
        match (subject, test) {
            (_, Test::Not(inner)) => self.need(subject, inner),
            (_, Test::Route(templates)) => {
                self.needs.path = true;
                for template in templates {
                    if let Some(route) = Route::new(&template.0) {
                        self.name(&route, &template.0);
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

    /// Makes a route known; of templates that mean the same, the first gives it its name.
    fn name(&mut self, route: &Route, template: &str) {
        self.needs.path = true;
        let templates = &mut self.templates;
        self.tree.value_mut(route, || {
            templates.push(template.into());
            Named {
                template: templates.len() - 1,
                entries: Vec::new(),
            }
        });
    }

    /// Files an entry under the condition that it shares with the fewest others.
    fn file(
        &mut self,
        origin: Origin,
        mut conditions: Vec<Compiled>,
        shared: &HashMap<Term, usize>,
    ) {
        let entry = self.entries.len();
        let crowd = |terms: &Vec<Term>| {
            let counts = terms.iter().filter_map(|term| shared.get(term)).copied();
            counts.max().unwrap_or(0)
        };
        let best = conditions
            .iter()
            .enumerate()
            .filter_map(|(index, condition)| {
                let terms = condition.terms.as_ref()?;
                Some((crowd(terms), kind(&condition.check.asks), index))
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
                    .for_each(|term| self.file_under(term, entry));
                // The literal end of a glob is not all of it; everything else was proved by being found.
                let is_glob = |condition: &Compiled| matches!(condition.check.asks, Asks::Glob(_));
                if !conditions.get(index).is_some_and(is_glob) {
                    conditions.remove(index);
                }
            }
        }
        let target = match origin {
            Origin::Deny(index) => Target::Deny(index),
            Origin::Limit(index) => Target::Limit(index),
            Origin::Exempt(_) | Origin::Route(_) => Target::Exempt,
        };
        self.entries.push(Entry {
            target,
            rest: conditions
                .into_iter()
                .map(|condition| condition.check)
                .collect(),
        });
    }

    fn file_under(&mut self, term: Term, entry: usize) {
        match term {
            Term::Route(route) => {
                let make = || Named {
                    template: usize::MAX,
                    entries: Vec::new(),
                };
                // It has a name since its condition was compiled.
                if let Some(named) = self.tree.value_mut(&route, make) {
                    named.entries.push(entry);
                }
            }
            Term::Exactly(subject, value) => {
                let exact = self.exact.entry(subject).or_default();
                exact.longest = exact.longest.max(value.len());
                exact.values.entry(value).or_default().push(entry);
            }
            Term::Within(network) => self.networks.entry(network).or_default().push(entry),
            Term::Before(subject, text) => self.ends(subject).before.add(&text, entry),
            Term::After(subject, mut text) => {
                text.reverse();
                self.ends(subject).after.add(&text, entry);
            }
        }
    }

    fn ends(&mut self, subject: Subject) -> &mut Ends {
        self.globs.entry(subject).or_insert_with(|| Ends {
            before: Prefixes::new(),
            after: Prefixes::new(),
        })
    }

    fn finish(self) -> Matcher {
        Matcher {
            attributes: self.attributes.into(),
            needs: self.needs,
            entries: self.entries.into(),
            limits: self.limits.into(),
            templates: self.templates.into(),
            always: self.always,
            tree: self.tree,
            exact: self.exact.into_iter().collect(),
            networks: Networks::new(self.networks),
            globs: self.globs.into_iter().collect(),
        }
    }
}

fn standings(draft: &Draft) -> Vec<Standing> {
    let narrowest = |name: &str| {
        draft
            .groups
            .iter()
            .position(|group| *group.name.value == *name && group.apply == Apply::Narrowest)
    };
    let limits = draft.limits.iter().map(|limit| {
        let is_enforced = limit.rule.mode == Mode::Enforce;
        let meters = limit.rule.meters.iter();
        let asked = meters.filter(|meter| meter.role != Role::Candidate).count();
        Standing {
            // What is not enforced takes nobody's place: a narrow limit that is tried in shadow, or was switched off,
            // must not be what frees its requests from the wide one.
            group: limit
                .group
                .as_deref()
                .and_then(narrowest)
                .filter(|_| is_enforced),
            conditions: limit.matching.conditions.len(),
            asked: if is_enforced { asked } else { 0 },
        }
    });
    limits.collect()
}

/// The terms of which one turns up wherever a test holds. `None` if there are no such.
fn terms(subject: Subject, test: &Test) -> Result<Option<Vec<Term>>, Why> {
    Ok(Some(match test {
        Test::OneOf(values) if subject == Subject::Ip => values
            .iter()
            .filter_map(|value| value.parse::<IpAddr>().ok())
            .map(|address| Term::Within(networks::canonical(IpNet::from(address))))
            .collect(),
        Test::OneOf(values) => values
            .iter()
            .map(|value| Term::Exactly(subject, exactly(subject, value)))
            .collect(),
        Test::Within(networks) => networks
            .iter()
            .map(|network| Term::Within(networks::canonical(*network)))
            .collect(),
        Test::Route(templates) => {
            let routes = templates
                .iter()
                .filter_map(|template| Route::new(&template.0));
            routes.map(Term::Route).collect()
        }
        Test::Glob(_) if subject == Subject::Ip => return Ok(None),
        Test::Glob(globs) => {
            let mut terms = Vec::with_capacity(globs.len());
            for glob in globs {
                let pattern = pattern(subject, &glob.0)?;
                terms.push(if pattern.before().len() >= pattern.after().len() {
                    Term::Before(subject, pattern.before().into())
                } else {
                    Term::After(subject, pattern.after().into())
                });
            }
            terms
        }
        Test::Present | Test::Absent | Test::Not(_) => return Ok(None),
    }))
}

/// Of two conditions that are shared with as many others, the cheaper to look up comes first.
const fn kind(asks: &Asks) -> usize {
    match asks {
        Asks::Route(_) => 0,
        Asks::OneOf(_) => 1,
        Asks::Within(_) => 2,
        Asks::Glob(_) => 3,
        Asks::Present | Asks::Absent | Asks::Not(_) => 4,
    }
}
