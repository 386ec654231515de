//! A naive matcher: evaluates every condition of every limit.
//!
//! Simple enough to verify by reading, and shares no code with the index. Must not know: the index.

use std::net::IpAddr;

use crate::attributes::{Attribute, Attributes};
use crate::model::{Condition, GroupSelection, IpNet, LimitRule, Match, Mode, Policy, Test};
use crate::rules::ListVerdict;

/// The rules that match a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NaiveMatch {
    pub(super) listed: ListVerdict,
    pub(super) rules: Vec<usize>,
    pub(super) route: Option<String>,
}

pub(super) fn find(policy: &Policy, request: &dyn Attributes) -> NaiveMatch {
    let view = NaiveRequest::new(policy, request);
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
    NaiveRequest::new(policy, request).holds(&condition.attribute, &condition.test)
}

struct NaiveRequest<'a> {
    request: &'a dyn Attributes,
    /// The segments of the path, and whether it has a trailing slash.
    path: Option<(Vec<Vec<u8>>, bool)>,
    template: Option<String>,
}

impl<'a> NaiveRequest<'a> {
    fn new(policy: &Policy, request: &'a dyn Attributes) -> Self {
        let raw = request
            .get(&Attribute::Path)
            .or_else(|| request.get(&Attribute::Route));
        let path = raw.map(segments);
        let mut templates: Vec<String> = Vec::new();
        let limits = policy.limits.iter().map(|limit| &limit.matching);
        let lists = policy.deny.iter().map(|deny| &deny.matching);
        for matching in limits.chain(policy.exempt.iter()).chain(lists) {
            for condition in &matching.conditions {
                collect(&condition.value.test, &mut templates);
            }
        }
        templates.extend(policy.routes.iter().map(|route| route.value.0.to_string()));
        let mut under = templates;
        under.retain(|template| {
            path.as_ref()
                .is_some_and(|(path, _)| path_matches(path, template))
        });
        // The sort is stable, so of equivalent templates the first stays first.
        under.sort_by_key(|template| specificity(template));
        Self {
            request,
            path,
            template: under.into_iter().next(),
        }
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
                Some((segments, slash)) => {
                    let bare = joined(segments);
                    let mut with_slash = bare.clone();
                    with_slash.push(b'/');
                    if *slash && !segments.is_empty() {
                        vec![bare, with_slash]
                    } else {
                        vec![bare]
                    }
                }
                None => Vec::new(),
            },
            Attribute::Host => {
                let host = self.request.get(attribute);
                host.map(<[u8]>::to_ascii_lowercase).into_iter().collect()
            }
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

    fn holds(&self, attribute: &Attribute, test: &Test) -> bool {
        let spellings = self.spellings(attribute);
        match test {
            Test::OneOf(values) => values.iter().any(|value| {
                spellings.iter().any(|spelling| match attribute {
                    Attribute::Path => joined(&segments(value.as_bytes()).0) == *spelling,
                    Attribute::Host => value.to_ascii_lowercase().as_bytes() == spelling,
                    Attribute::Ip => value
                        .parse::<IpAddr>()
                        .is_ok_and(|ip| ip.to_canonical().to_string().as_bytes() == spelling),
                    _ => value.as_bytes() == spelling,
                })
            }),
            Test::Glob(globs) => globs.iter().any(|glob| {
                let mut glob = glob.0.to_string();
                if *attribute == Attribute::Host {
                    glob = glob.to_ascii_lowercase();
                }
                if *attribute == Attribute::Path && glob.len() > 1 {
                    glob = glob.strip_suffix('/').map(str::to_owned).unwrap_or(glob);
                }
                spellings.iter().any(|spelling| {
                    let text = String::from_utf8_lossy(spelling);
                    let pattern: Vec<char> = glob.chars().collect();
                    glob_matches(None, &pattern, &text.chars().collect::<Vec<_>>())
                })
            }),
            Test::Route(templates) => self.path.as_ref().is_some_and(|(path, _)| {
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

fn path_matches(path: &[Vec<u8>], template: &str) -> bool {
    let parts: Vec<&str> = template
        .split('/')
        .filter(|part| !part.is_empty())
        .collect();
    for (index, part) in parts.iter().enumerate() {
        if part.starts_with("{*") {
            return true;
        }
        match path.get(index) {
            None => return false,
            Some(_) if part.starts_with('{') => {}
            Some(segment) if *segment == decode(part.as_bytes()) => {}
            Some(_) => return false,
        }
    }
    parts.len() == path.len()
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

fn segments(raw: &[u8]) -> (Vec<Vec<u8>>, bool) {
    let raw = raw.split(|byte| b"?#".contains(byte)).next().unwrap();
    let mut result: Vec<Vec<u8>> = Vec::new();
    let mut slash = false;
    for segment in raw.split(|byte| *byte == b'/').map(decode) {
        slash = true;
        match &segment[..] {
            b"" | b"." => {}
            b".." => drop(result.pop()),
            _ => {
                result.push(segment);
                slash = false;
            }
        }
    }
    (result, slash)
}

/// Decodes escapes, but for those of `/` and `%`.
fn decode(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let escape = text
            .get(at..at + 3)
            .filter(|escape| escape[0] == b'%' && escape[1..].iter().all(u8::is_ascii_hexdigit))
            .and_then(|escape| std::str::from_utf8(&escape[1..]).ok())
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match escape {
            Some(b'/') => out.extend(b"%2F"),
            Some(b'%') => out.extend(b"%25"),
            Some(byte) => out.push(byte),
            None => {
                out.push(text[at]);
                at += 1;
                continue;
            }
        }
        at += 3;
    }
    out
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
