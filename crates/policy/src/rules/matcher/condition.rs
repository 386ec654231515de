//! One condition, compiled, and whether it holds.
//!
//! Must not know: how conditions are found, what depends on them.

use std::fmt::Write as _;
use std::net::IpAddr;

use super::super::draft::Why;
use super::super::globs::Pattern;
use super::super::networks::{self, Networks};
use super::super::path;
use super::super::tree::Route;
use super::look::{Look, Subject};
use crate::model::{IpNet, Test};

/// What is asked of one attribute.
#[derive(Debug)]
pub(super) struct Check {
    pub(super) subject: Subject,
    pub(super) asks: Asks,
}

#[derive(Debug)]
pub(super) enum Asks {
    /// Sorted.
    OneOf(Box<[Box<[u8]>]>),
    Glob(Box<[Pattern]>),
    Route(Box<[Route]>),
    Within(Networks<()>),
    Present,
    Absent,
    Not(Box<Asks>),
}

impl Check {
    pub(super) fn holds(&self, look: &mut Look<'_>) -> bool {
        self.asks.hold(self.subject, look)
    }
}

impl Asks {
    /// What a test asks.
    pub(super) fn new(subject: Subject, test: &Test) -> Result<Self, Why> {
        Ok(match test {
            // Addresses have many spellings; what is meant by one is the address.
            Test::OneOf(values) if subject == Subject::Ip => Self::Within(set(values
                .iter()
                .filter_map(|value| value.parse::<IpAddr>().ok())
                .map(IpNet::from))),
            Test::OneOf(values) => {
                let mut values: Vec<Box<[u8]>> =
                    values.iter().map(|value| exactly(subject, value)).collect();
                values.sort_unstable();
                Self::OneOf(values.into())
            }
            Test::Glob(globs) => {
                let compiled = globs.iter().map(|glob| pattern(subject, &glob.0));
                Self::Glob(compiled.collect::<Result<_, _>>()?)
            }
            Test::Route(templates) => {
                let routes = templates.iter().map(|template| {
                    Route::new(&template.0).ok_or_else(|| Why::Segments(template.clone()))
                });
                Self::Route(routes.collect::<Result<_, _>>()?)
            }
            Test::Within(networks) => Self::Within(set(networks.iter().copied())),
            Test::Present => Self::Present,
            Test::Absent => Self::Absent,
            Test::Not(inner) => Self::Not(Box::new(Self::new(subject, inner)?)),
        })
    }

    fn hold(&self, subject: Subject, look: &mut Look<'_>) -> bool {
        match self {
            Self::OneOf(values) => look.value(subject).is_some_and(|value| {
                values
                    .binary_search_by(|known| (**known).cmp(value))
                    .is_ok()
            }),
            Self::Glob(patterns) => match subject {
                Subject::Ip => look.ip.is_some_and(|ip| {
                    let text = IpText::of(ip);
                    any(patterns, text.as_bytes())
                }),
                Subject::Path => look
                    .path
                    .is_some_and(|path| any(patterns, path.bare()) || any(patterns, path.full())),
                _ => look
                    .value(subject)
                    .is_some_and(|value| any(patterns, value)),
            },
            Self::Route(routes) => look
                .path
                .is_some_and(|path| routes.iter().any(|route| route.holds(path))),
            Self::Within(networks) => look.ip.is_some_and(|ip| networks.contain(ip)),
            Self::Present => look.has(subject),
            Self::Absent => !look.has(subject),
            Self::Not(inner) => inner.can_be_asked(subject, look) && !inner.hold(subject, look),
        }
    }

    /// Whether there is anything to ask. Templates are asked of the path: one that lies under none of them is not without
    /// a route, it is outside of them.
    fn can_be_asked(&self, subject: Subject, look: &mut Look<'_>) -> bool {
        match self {
            Self::Not(inner) => inner.can_be_asked(subject, look),
            Self::Route(_) => look.path.is_some(),
            _ => look.has(subject),
        }
    }
}

fn any(patterns: &[Pattern], value: &[u8]) -> bool {
    patterns.iter().any(|pattern| pattern.matches(value))
}

/// The value of an attribute as a policy writes it, in the spelling that requests are looked at in.
pub(super) fn exactly(subject: Subject, value: &str) -> Box<[u8]> {
    match subject {
        Subject::Host => value.to_ascii_lowercase().into_bytes().into(),
        Subject::Path => {
            let raw = value.as_bytes();
            let mut room = [0; path::PATH_ROOM];
            path::as_it_is(raw)
                .unwrap_or_else(|| path::rewritten(raw, &mut room))
                .bare()
                .into()
        }
        _ => value.as_bytes().into(),
    }
}

/// The pattern of a glob, in the spelling that requests are looked at in.
pub(super) fn pattern(subject: Subject, glob: &str) -> Result<Pattern, Why> {
    let spelled = match subject {
        Subject::Host => glob.to_ascii_lowercase().into_bytes(),
        Subject::Path => match path::decoded(glob.as_bytes()) {
            // A slash at the end does not count in paths, so it must not in what they are compared with.
            mut text if text.len() > 1 && text.ends_with(b"/") => {
                text.pop();
                text
            }
            text => text,
        },
        _ => glob.as_bytes().to_vec(),
    };
    Pattern::new(&spelled).ok_or_else(|| Why::GlobBytes(glob.into()))
}

fn set(networks: impl Iterator<Item = IpNet>) -> Networks<()> {
    let mut networks: Vec<IpNet> = networks.map(networks::canonical).collect();
    networks.sort_unstable();
    networks.dedup();
    Networks::new(networks.into_iter().map(|network| (network, ())))
}

/// An address as people write it, without an allocation.
struct IpText {
    bytes: [u8; 48],
    len: usize,
}

impl IpText {
    fn of(ip: IpAddr) -> Self {
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
        let room = self.bytes.get_mut(self.len..to).ok_or(std::fmt::Error)?;
        room.copy_from_slice(text.as_bytes());
        self.len = to;
        Ok(())
    }
}
