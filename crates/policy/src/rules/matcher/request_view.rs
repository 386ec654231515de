//! A request as matching sees it: every attribute is asked for once, paths and hosts have one spelling.
//!
//! Must not know: rules, conditions.

use std::net::IpAddr;

use super::super::path::{self, NormalizedPath, PATH_CAPACITY};
use crate::attributes::{Attribute, Attributes};

/// How many attributes are remembered; further ones are asked for again. Those that most conditions ask for come first.
const CACHED_ATTRIBUTES: usize = 32;
/// How long a host may be that has to be rewritten.
const HOST_CAPACITY: usize = 1_024;

/// What a condition is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Subject {
    Ip,
    Path,
    Host,
    Route,
    /// Any other attribute, by its index in the list of them.
    Other(usize),
}

/// Which of the attributes that cost something to look at are needed at all.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NeededAttributes {
    pub(super) ip: bool,
    pub(super) path: bool,
    pub(super) host: bool,
    pub(super) route: bool,
}

/// A request, looked at.
pub(super) struct RequestView<'a> {
    request: &'a dyn Attributes,
    attributes: &'a [Attribute],
    pub(super) ip: Option<IpAddr>,
    pub(super) path: Option<NormalizedPath<'a>>,
    pub(super) route: Option<&'a [u8]>,
    host: Option<&'a [u8]>,
    fetched: u32,
    values: [Option<&'a [u8]>; CACHED_ATTRIBUTES],
}

/// Path and host as the transport has them.
#[derive(Clone, Copy)]
pub(super) struct RawAttributes<'a> {
    path: Option<&'a [u8]>,
    host: Option<&'a [u8]>,
    route: Option<&'a [u8]>,
}

/// Room for a path and a host that have to be rewritten.
pub(super) struct NormalizationBuffers {
    path: [u8; PATH_CAPACITY],
    host: [u8; HOST_CAPACITY],
}

impl<'a> RawAttributes<'a> {
    /// Where only the route is known, it stands for the path: it lies under its own template.
    pub(super) fn of(request: &'a dyn Attributes, needs: NeededAttributes) -> Self {
        let get =
            |needed: bool, attribute: &Attribute| needed.then(|| request.get(attribute)).flatten();
        let path = get(needs.path, &Attribute::Path);
        let route = get(
            needs.route || (needs.path && path.is_none()),
            &Attribute::Route,
        );
        Self {
            path: path.or(route.filter(|_| needs.path)),
            host: get(needs.host, &Attribute::Host),
            route,
        }
    }
}

impl NormalizationBuffers {
    pub(super) const fn new() -> Self {
        Self {
            path: [0; PATH_CAPACITY],
            host: [0; HOST_CAPACITY],
        }
    }
}

impl<'a> RequestView<'a> {
    /// Looks at a request whose path and host are spelled as they should be; `None` if they are not.
    pub(super) fn if_normalized(
        request: &'a dyn Attributes,
        attributes: &'a [Attribute],
        needs: NeededAttributes,
        raw: RawAttributes<'a>,
    ) -> Option<Self> {
        let path = match raw.path {
            Some(raw) => Some(path::already_normalized(raw)?),
            None => None,
        };
        if raw.host.is_some_and(has_uppercase) {
            return None;
        }
        Some(Self::new(request, attributes, needs, raw, path, raw.host))
    }

    /// Looks at any request. The second answer is whether the path or the host was too long to be rewritten.
    pub(super) fn normalized(
        request: &'a dyn Attributes,
        attributes: &'a [Attribute],
        needs: NeededAttributes,
        raw: RawAttributes<'a>,
        room: &'a mut NormalizationBuffers,
    ) -> (Self, bool) {
        let path_room = &mut room.path;
        let path = raw.path.map(|raw| match path::already_normalized(raw) {
            Some(path) => path,
            None => path::normalize(raw, path_room),
        });
        let host = raw.host.map(|raw| match room.host.get_mut(..raw.len()) {
            Some(room) if has_uppercase(raw) => {
                room.copy_from_slice(raw);
                room.make_ascii_lowercase();
                &*room
            }
            _ => raw,
        });
        let unreadable =
            path.is_some_and(|path| path.is_truncated) || host.is_some_and(has_uppercase);
        let look = Self::new(request, attributes, needs, raw, path, host);
        (look, unreadable)
    }

    fn new(
        request: &'a dyn Attributes,
        attributes: &'a [Attribute],
        needs: NeededAttributes,
        raw: RawAttributes<'a>,
        path: Option<NormalizedPath<'a>>,
        host: Option<&'a [u8]>,
    ) -> Self {
        Self {
            request,
            attributes,
            ip: if needs.ip { request.ip() } else { None },
            path,
            route: raw.route,
            host,
            fetched: 0,
            values: [None; CACHED_ATTRIBUTES],
        }
    }

    /// The bytes of an attribute. Paths come without a slash at the end; addresses have none.
    pub(super) fn value(&mut self, subject: Subject) -> Option<&'a [u8]> {
        match subject {
            Subject::Ip => None,
            Subject::Path => self.path.map(NormalizedPath::without_trailing_slash),
            Subject::Host => self.host,
            Subject::Route => self.route,
            Subject::Other(index) => self.other(index),
        }
    }

    /// Whether the attribute is there.
    pub(super) fn has(&mut self, subject: Subject) -> bool {
        match subject {
            Subject::Ip => self.ip.is_some(),
            other => self.value(other).is_some(),
        }
    }

    fn other(&mut self, index: usize) -> Option<&'a [u8]> {
        let attribute = self.attributes.get(index)?;
        let Some(answer) = self.values.get_mut(index) else {
            return self.request.get(attribute);
        };
        if self.fetched >> index & 1 == 0 {
            self.fetched |= 1 << index;
            *answer = self.request.get(attribute);
        }
        *answer
    }
}

fn has_uppercase(host: &[u8]) -> bool {
    host.iter().any(u8::is_ascii_uppercase)
}
