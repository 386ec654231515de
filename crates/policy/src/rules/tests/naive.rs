//! A naive matcher: evaluates every condition of every limit.
//!
//! Simple enough to verify by reading, and shares no code with the index. Must not know: the index.

use std::net::IpAddr;

use super::naive_path::{NaivePath, decoded, policy_path, readings};
use crate::attributes::{Attribute, Attributes};
use crate::model::{
    Condition, GroupSelection, IpNet, LimitRule, Match, Mode, OnMissing, Policy, Test,
};
use crate::rules::ListVerdict;

/// The rules that match a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NaiveMatch {
    pub(super) listed: ListVerdict,
    pub(super) rules: Vec<usize>,
    pub(super) route: Option<String>,
}

/// `None` if the request cannot be read.
pub(super) fn find(policy: &Policy, request: &dyn Attributes) -> Option<NaiveMatch> {
    let mut all = Vec::new();
    for view in NaiveRequest::all_readings(policy, request)? {
        all.push(find_under(policy, &view));
    }
    let listed = |one: &NaiveMatch| match one.listed {
        ListVerdict::Denied(index) => Some(index),
        _ => None,
    };
    let denied = all.iter().filter_map(listed).min();
    let is_exempt = all.iter().all(|one| one.listed == ListVerdict::Exempt);
    let routes = all.iter().filter_map(|one| one.route.clone());
    let route = routes.min_by_key(|template| (specificity(template), first_use(policy, template)));
    let (listed, rules) = match denied {
        Some(index) => (ListVerdict::Denied(index), Vec::new()),
        None if is_exempt => (ListVerdict::Exempt, Vec::new()),
        None => {
            let each = all.iter().flat_map(|one| one.rules.iter().copied());
            let union: std::collections::BTreeSet<usize> = each.collect();
            (ListVerdict::Limits, union.into_iter().collect())
        }
    };
    Some(NaiveMatch {
        listed,
        rules,
        route,
    })
}

fn find_under(policy: &Policy, view: &NaiveRequest<'_>) -> NaiveMatch {
    let route = view.template.clone();
    let answer = |listed, rules| NaiveMatch {
        listed,
        rules,
        route: route.clone(),
    };
    let denied = policy.deny.iter().position(|deny| view.all(&deny.matching));
    if let Some(index) = denied {
        return answer(ListVerdict::Denied(index), Vec::new());
    }
    if policy.exempt.iter().any(|exempt| view.all(exempt)) {
        return answer(ListVerdict::Exempt, Vec::new());
    }
    let matching: Vec<usize> = (0..policy.limits.len())
        .filter(|index| view.all(&policy.limits[*index].matching))
        .collect();
    let result = matching.iter().copied().filter(|index| {
        let limit = &policy.limits[*index];
        let Some(name) = &limit.group else {
            return true;
        };
        let is_enforced = |limit: &LimitRule| limit.mode.max(policy.mode) == Mode::Enforce;
        if !is_enforced(limit) {
            return true;
        }
        let is_narrowest = |group: &&crate::model::Group| group.apply == GroupSelection::Narrowest;
        if !policy
            .groups
            .iter()
            .filter(is_narrowest)
            .any(|group| group.name == *name)
        {
            return true;
        }
        let mut rivals: Vec<usize> = matching.clone();
        rivals.retain(|rival| policy.limits[*rival].group.as_ref() == Some(name));
        rivals.retain(|rival| is_enforced(&policy.limits[*rival]));
        let most = rivals
            .iter()
            .map(|rival| policy.limits[*rival].matching.conditions.len())
            .max();
        rivals.retain(|rival| Some(policy.limits[*rival].matching.conditions.len()) == most);
        rivals.first() == Some(index)
    });
    answer(ListVerdict::Limits, result.collect())
}

/// Whether one condition matches, to count how often each kind does.
pub(super) fn holds(policy: &Policy, condition: &Condition, request: &dyn Attributes) -> bool {
    NaiveRequest::all_readings(policy, request).is_some_and(|views| {
        let mut views = views.iter();
        views.any(|view| view.holds(&condition.attribute, &condition.test))
    })
}

/// Whether a limit does not apply because the request lacks a part of its key. Only for attributes that are read as they are.
pub(super) fn is_skipped(limit: &LimitRule, request: &dyn Attributes) -> bool {
    let lacks = |missing: OnMissing| {
        let mut parts = limit.key.iter();
        parts.any(|part| part.missing == missing && request.get(&part.attribute.value).is_none())
    };
    lacks(OnMissing::Skip) && !lacks(OnMissing::Deny)
}

struct NaiveRequest<'a> {
    request: &'a dyn Attributes,
    path: Option<NaivePath>,
    host: Option<Vec<u8>>,
    template: Option<String>,
}

impl<'a> NaiveRequest<'a> {
    /// The request under each reading; `None` if it cannot be read.
    fn all_readings(policy: &Policy, request: &'a dyn Attributes) -> Option<Vec<Self>> {
        let sent = request.get(&Attribute::Path);
        let raw = sent.or_else(|| request.get(&Attribute::Route));
        let uses = |attribute: &Attribute| {
            let conditions = conditions(policy).any(|condition| condition.attribute == *attribute);
            conditions
                || policy.limits.iter().any(|limit| {
                    limit
                        .key
                        .iter()
                        .any(|part| part.attribute.value == *attribute)
                })
        };
        let host = match request.get(&Attribute::Host) {
            Some(host) if uses(&Attribute::Host) => {
                if host.contains(&b'/') {
                    return None;
                }
                let text = String::from_utf8_lossy(host).to_ascii_lowercase();
                let text = text.split(':').next().unwrap();
                Some(text.trim_end_matches('.').as_bytes().to_vec())
            }
            _ => None,
        };
        let templates = templates(policy);
        let uses_path = uses(&Attribute::Path) || !templates.is_empty();
        let paths = match raw {
            Some(raw) if uses_path => {
                let paths = readings(raw, policy.paths);
                paths.or_else(|| sent.is_none().then(Vec::new))?
            }
            _ => Vec::new(),
        };
        let view = |path: Option<NaivePath>| {
            let mut under = templates.clone();
            under.retain(|template| {
                path.as_ref()
                    .is_some_and(|path| path_matches(path, template))
            });
            // The sort is stable, so of equivalent templates the first stays first.
            under.sort_by_key(|template| specificity(template));
            Self {
                request,
                path,
                host: host.clone(),
                template: under.into_iter().next(),
            }
        };
        Some(match paths.is_empty() {
            true => vec![view(None)],
            false => paths.into_iter().map(|path| view(Some(path))).collect(),
        })
    }

    fn all(&self, matching: &Match) -> bool {
        let mut conditions = matching.conditions.iter();
        conditions.all(|condition| self.holds(&condition.value.attribute, &condition.value.test))
    }

    /// All spellings of the attribute that conditions may match; empty if it is absent.
    fn spellings(&self, attribute: &Attribute) -> Vec<Vec<u8>> {
        match attribute {
            Attribute::Ip => {
                let text = self.request.ip().map(|ip| ip.to_canonical().to_string());
                text.map(String::into_bytes).into_iter().collect()
            }
            Attribute::Path => match &self.path {
                Some(NaivePath {
                    segments,
                    has_slash,
                    ..
                }) => {
                    let bare = joined(segments);
                    let mut with_slash = bare.clone();
                    with_slash.push(b'/');
                    if *has_slash && !segments.is_empty() {
                        vec![bare, with_slash]
                    } else {
                        vec![bare]
                    }
                }
                None => Vec::new(),
            },
            Attribute::Host => self.host.clone().into_iter().collect(),
            Attribute::Route => {
                let route = self.request.get(attribute).map(<[u8]>::to_vec);
                route
                    .or(self.template.clone().map(String::into_bytes))
                    .into_iter()
                    .collect()
            }
            other => {
                let value = self.request.get(other).map(<[u8]>::to_vec);
                value.into_iter().collect()
            }
        }
    }

    /// A text of the policy, as this reading compares it.
    fn folded(&self, mut text: Vec<u8>) -> Vec<u8> {
        if self.path.as_ref().is_some_and(|path| path.fold) {
            text.make_ascii_lowercase();
        }
        text
    }

    fn holds(&self, attribute: &Attribute, test: &Test) -> bool {
        let spellings = self.spellings(attribute);
        match test {
            Test::OneOf(values) => values.iter().any(|value| {
                spellings.iter().any(|spelling| match attribute {
                    Attribute::Path => {
                        let value = joined(&policy_path(value.as_bytes()).segments);
                        self.folded(value) == *spelling
                    }
                    Attribute::Host => {
                        let value = value.to_ascii_lowercase();
                        value.trim_end_matches('.').as_bytes() == spelling
                    }
                    Attribute::Ip => value
                        .parse::<IpAddr>()
                        .is_ok_and(|ip| ip.to_canonical().to_string().as_bytes() == spelling),
                    _ => value.as_bytes() == spelling,
                })
            }),
            Test::Glob(globs) => globs.iter().any(|glob| {
                let mut glob = glob.0.to_string();
                if *attribute == Attribute::Host {
                    glob = glob.trim_end_matches('.').to_ascii_lowercase();
                }
                if *attribute == Attribute::Path && glob.len() > 1 {
                    glob = glob.strip_suffix('/').map(str::to_owned).unwrap_or(glob);
                }
                if *attribute == Attribute::Path {
                    glob = String::from_utf8(self.folded(glob.into_bytes())).unwrap();
                }
                spellings.iter().any(|spelling| {
                    let text = String::from_utf8_lossy(spelling);
                    let pattern: Vec<char> = glob.chars().collect();
                    glob_matches(None, &pattern, &text.chars().collect::<Vec<_>>())
                })
            }),
            Test::Route(templates) => self.path.as_ref().is_some_and(|path| {
                templates
                    .iter()
                    .any(|template| path_matches(path, &template.0))
            }),
            Test::Within(networks) => self
                .request
                .ip()
                .is_some_and(|ip| networks.iter().any(|network| contains(network, ip))),
            Test::Present => !spellings.is_empty(),
            Test::Absent => spellings.is_empty(),
            Test::Not(inner) => {
                let mut core = inner;
                while let Test::Not(deeper) = &**core {
                    core = deeper;
                }
                let there = match **core {
                    Test::Route(_) => self.path.is_some(),
                    _ => !spellings.is_empty(),
                };
                there && !self.holds(attribute, inner)
            }
        }
    }
}

fn conditions(policy: &Policy) -> impl Iterator<Item = &Condition> {
    let limits = policy.limits.iter().map(|limit| &limit.matching);
    let lists = policy.deny.iter().map(|deny| &deny.matching);
    let all = limits.chain(policy.exempt.iter()).chain(lists);
    all.flat_map(|matching| matching.conditions.iter().map(|condition| &condition.value))
}

/// The route templates of a policy, in order.
fn templates(policy: &Policy) -> Vec<String> {
    let mut templates: Vec<String> = Vec::new();
    for condition in conditions(policy) {
        collect(&condition.test, &mut templates);
    }
    templates.extend(policy.routes.iter().map(|route| route.value.0.to_string()));
    templates
}

/// Where the policy has a template first.
fn first_use(policy: &Policy, template: &str) -> Option<usize> {
    templates(policy).iter().position(|known| known == template)
}

fn collect(test: &Test, templates: &mut Vec<String>) {
    match test {
        Test::Route(list) => templates.extend(list.iter().map(|template| template.0.to_string())),
        Test::Not(inner) => collect(inner, templates),
        _ => {}
    }
}

/// Literals before `{x}` before the end before `{*x}`, segment by segment.
fn specificity(template: &str) -> Vec<u8> {
    let parts = template.split('/').filter(|part| !part.is_empty());
    let mut ranks: Vec<u8> = parts
        .map(|part| match part {
            part if part.starts_with("{*") => 3,
            part if part.starts_with('{') => 1,
            _ => 0,
        })
        .collect();
    ranks.push(2);
    ranks
}

fn path_matches(path: &NaivePath, template: &str) -> bool {
    let parts: Vec<&str> = template
        .split('/')
        .filter(|part| !part.is_empty())
        .collect();
    for (index, part) in parts.iter().enumerate() {
        if part.starts_with("{*") {
            return true;
        }
        let mut literal = decoded(part.as_bytes());
        if path.fold {
            literal.make_ascii_lowercase();
        }
        match path.segments.get(index) {
            None => return false,
            Some(_) if part.starts_with('{') => {}
            Some(segment) if *segment == literal => {}
            Some(_) => return false,
        }
    }
    parts.len() == path.segments.len()
}

fn joined(segments: &[Vec<u8>]) -> Vec<u8> {
    let mut path: Vec<u8> = segments
        .iter()
        .flat_map(|segment| [b"/", &segment[..]].concat())
        .collect();
    if path.is_empty() {
        path.push(b'/');
    }
    path
}

/// Tries every match of the pattern.
fn glob_matches(before: Option<char>, pattern: &[char], text: &[char]) -> bool {
    match pattern {
        [] => text.is_empty(),
        ['*', '*', ..] => {
            let stars = pattern.iter().take_while(|char| **char == '*').count();
            let rest = &pattern[stars..];
            let at_segment = before.is_none_or(|char| char == '/');
            let left_out = at_segment
                && rest.first() == Some(&'/')
                && glob_matches(Some('/'), &rest[1..], text);
            left_out || (0..=text.len()).any(|skip| glob_matches(Some('*'), rest, &text[skip..]))
        }
        ['*', rest @ ..] => (0..=text.len())
            .take_while(|skip| *skip == 0 || text[skip - 1] != '/')
            .any(|skip| glob_matches(Some('*'), rest, &text[skip..])),
        ['?', rest @ ..] => {
            text.first().is_some_and(|char| *char != '/')
                && glob_matches(Some('?'), rest, &text[1..])
        }
        [char, rest @ ..] => {
            text.first() == Some(char) && glob_matches(Some(*char), rest, &text[1..])
        }
    }
}

/// Compares bit by bit.
fn contains(network: &IpNet, ip: IpAddr) -> bool {
    let bits = |ip: IpAddr| -> Vec<bool> {
        let octets = match ip {
            IpAddr::V4(v4) => v4.octets().to_vec(),
            IpAddr::V6(v6) => v6.octets().to_vec(),
        };
        let each = octets
            .into_iter()
            .flat_map(|octet| (0..8).rev().map(move |bit| octet >> bit & 1 == 1));
        each.collect()
    };
    let mut length = usize::from(network.prefix_len());
    let mut address = network.addr();
    if let IpAddr::V6(v6) = address
        && let Some(v4) = v6.to_ipv4_mapped()
        && length >= 96
    {
        address = v4.into();
        length -= 96;
    }
    let ip = ip.to_canonical();
    address.is_ipv4() == ip.is_ipv4() && bits(address)[..length] == bits(ip)[..length]
}
