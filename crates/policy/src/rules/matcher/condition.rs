//! A compiled condition and its evaluation.
//!
//! Must not know: how conditions are found, what depends on them.

use std::fmt::Write as _;
use std::net::IpAddr;

use super::super::draft::RuleErrorKind;
use super::super::glob_pattern::GlobPattern;
use super::super::network_index::{self, NetworkIndex};
use super::super::path;
use super::super::route_tree::RoutePattern;
use super::needed_attributes::own_subject;
use super::request_view::{RequestView, Subject};
use crate::attributes::Attribute;
use crate::model::{IpNet, Test};

/// A test of one attribute.
#[derive(Debug)]
pub(super) struct CompiledCondition {
    pub(super) subject: Subject,
    pub(super) test: CompiledTest,
}

#[derive(Debug)]
pub(super) enum CompiledTest {
    /// Sorted.
    OneOf(Box<[Box<[u8]>]>),
    Glob(Box<[GlobPattern]>),
    Route(Box<[RoutePattern]>),
    Within(NetworkIndex<()>),
    Present,
    Absent,
    Not(Box<CompiledTest>),
}

impl CompiledCondition {
    pub(super) fn matches(&self, view: &mut RequestView<'_>) -> bool {
        self.test.matches(self.subject, view)
    }
}

impl CompiledTest {
    /// Compiles a test. `fold` makes it match paths in lower case.
    pub(super) fn new(subject: Subject, test: &Test, fold: bool) -> Result<Self, RuleErrorKind> {
        Ok(match test {
            // An address has several spellings, so addresses are compared, not texts.
            Test::OneOf(values) if subject == Subject::Ip => Self::Within(network_set(
                values
                    .iter()
                    .filter_map(|value| value.parse::<IpAddr>().ok())
                    .map(IpNet::from),
            )),
            Test::OneOf(values) => {
                let mut values: Vec<Box<[u8]>> = values
                    .iter()
                    .map(|value| normalize_value(subject, value, fold))
                    .collect();
                values.sort_unstable();
                Self::OneOf(values.into())
            }
            Test::Glob(globs) => {
                let compiled = globs
                    .iter()
                    .map(|glob| compile_glob(subject, &glob.0, fold));
                Self::Glob(compiled.collect::<Result<_, _>>()?)
            }
            Test::Route(templates) => {
                let routes = templates.iter().map(|template| {
                    RoutePattern::new(&template.0, fold)
                        .ok_or_else(|| RuleErrorKind::Segments(template.clone()))
                });
                Self::Route(routes.collect::<Result<_, _>>()?)
            }
            Test::Within(networks) => Self::Within(network_set(networks.iter().copied())),
            Test::Present => Self::Present,
            Test::Absent => Self::Absent,
            Test::Not(inner) => Self::Not(Box::new(Self::new(subject, inner, fold)?)),
        })
    }

    fn matches(&self, subject: Subject, view: &mut RequestView<'_>) -> bool {
        match self {
            Self::OneOf(values) => view.value(subject).is_some_and(|value| {
                values
                    .binary_search_by(|known| (**known).cmp(value))
                    .is_ok()
            }),
            Self::Glob(patterns) => match subject {
                Subject::Ip => view.ip.is_some_and(|ip| {
                    let text = IpText::new(ip);
                    any_matches(patterns, text.as_bytes())
                }),
                Subject::Path => view.path.is_some_and(|path| {
                    any_matches(patterns, path.without_trailing_slash())
                        || any_matches(patterns, path.full())
                }),
                _ => view
                    .value(subject)
                    .is_some_and(|value| any_matches(patterns, value)),
            },
            Self::Route(routes) => view
                .path
                .is_some_and(|path| routes.iter().any(|route| route.matches(path))),
            Self::Within(networks) => view.ip.is_some_and(|ip| networks.contains(ip)),
            Self::Present => view.has(subject),
            Self::Absent => !view.has(subject),
            Self::Not(inner) => inner.is_applicable(subject, view) && !inner.matches(subject, view),
        }
    }

    /// Whether the attribute is present. Route templates test the path: a path that matches none of them is present.
    fn is_applicable(&self, subject: Subject, view: &mut RequestView<'_>) -> bool {
        match self {
            Self::Not(inner) => inner.is_applicable(subject, view),
            Self::Route(_) => view.path.is_some(),
            _ => view.has(subject),
        }
    }
}

/// Whether a test of the path has an upper-case letter.
pub(super) fn has_uppercase(test: &Test) -> bool {
    let has = |text: &str| {
        let decoded = path::decode_escapes(text.as_bytes());
        decoded.iter().any(u8::is_ascii_uppercase)
    };
    match test {
        Test::OneOf(values) => values.iter().any(|value| has(value)),
        Test::Glob(globs) => globs.iter().any(|glob| has(&glob.0)),
        Test::Not(inner) => has_uppercase(inner),
        _ => false,
    }
}

fn any_matches(patterns: &[GlobPattern], value: &[u8]) -> bool {
    patterns.iter().any(|pattern| pattern.matches(value))
}

/// A value of a policy, normalized like the values of requests.
pub(super) fn normalize_value(subject: Subject, value: &str, fold: bool) -> Box<[u8]> {
    match subject {
        Subject::Host => {
            let host = value.trim_end_matches('.').to_ascii_lowercase();
            host.into_bytes().into()
        }
        Subject::Path => {
            let mut path = path::normalize_pattern(value.as_bytes());
            if fold {
                path.make_ascii_lowercase();
            }
            path.into()
        }
        _ => value.as_bytes().into(),
    }
}

/// The pattern of a glob, normalized like the values of requests.
pub(super) fn compile_glob(
    subject: Subject,
    glob: &str,
    fold: bool,
) -> Result<GlobPattern, RuleErrorKind> {
    let mut spelled = match subject {
        Subject::Host => {
            let host = glob.trim_end_matches('.').to_ascii_lowercase();
            host.into_bytes()
        }
        Subject::Path => match path::decode_escapes(glob.as_bytes()) {
            // Paths are compared without a trailing slash, so the glob has none either.
            mut text if text.len() > 1 && text.ends_with(b"/") => {
                text.pop();
                text
            }
            text => text,
        },
        _ => glob.as_bytes().to_vec(),
    };
    if fold && subject == Subject::Path {
        spelled.make_ascii_lowercase();
    }
    GlobPattern::new(&spelled).ok_or_else(|| RuleErrorKind::GlobBytes(glob.into()))
}

fn network_set(networks: impl Iterator<Item = IpNet>) -> NetworkIndex<()> {
    let mut networks: Vec<IpNet> = networks.map(network_index::canonical).collect();
    networks.sort_unstable();
    networks.dedup();
    NetworkIndex::new(networks.into_iter().map(|network| (network, ())))
}

/// The text of an address, without an allocation.
struct IpText {
    bytes: [u8; 48],
    len: usize,
}

impl IpText {
    fn new(ip: IpAddr) -> Self {
        let mut text = Self {
            bytes: [0; 48],
            len: 0,
        };
        // The longest address has 39 characters, so this cannot fail.
        if write!(text, "{}", ip.to_canonical()).is_err() {
            text.len = 0;
        }
        text
    }

    fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

impl std::fmt::Write for IpText {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let to = self.len + text.len();
        let buffers = self.bytes.get_mut(self.len..to).ok_or(std::fmt::Error)?;
        buffers.copy_from_slice(text.as_bytes());
        self.len = to;
        Ok(())
    }
}

/// A value of a policy, normalized like the values of requests.
pub(in super::super) fn normalize_value_of(attribute: &Attribute, value: &str) -> Box<[u8]> {
    normalize_value(
        own_subject(attribute).unwrap_or(Subject::Other(0)),
        value,
        false,
    )
}

/// The pattern of a glob, normalized like the values of requests; `None` if it is too long.
pub(in super::super) fn compile_glob_of(attribute: &Attribute, glob: &str) -> Option<GlobPattern> {
    compile_glob(
        own_subject(attribute).unwrap_or(Subject::Other(0)),
        glob,
        false,
    )
    .ok()
}
