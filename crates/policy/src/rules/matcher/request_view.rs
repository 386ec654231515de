//! A request during matching: reads each attribute at most once, and normalizes path and host.
//!
//! Must not know: rules, conditions.

use std::net::IpAddr;

use super::super::path::{self, NormalizedPath, PATH_CAPACITY};
use crate::attributes::{Attribute, Attributes};

/// How many attributes are cached; further ones are read again. The attributes that most conditions use come first.
const CACHED_ATTRIBUTES: usize = 32;
/// The maximum length of a host that has to be lower-cased.
const HOST_CAPACITY: usize = 1_024;

/// The attribute of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Subject {
    Ip,
    Path,
    Host,
    Route,
    /// Any other attribute, by its index in the list.
    Other(usize),
}

/// Which of the expensive attributes are needed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NeededAttributes {
    pub(super) ip: bool,
    pub(super) path: bool,
    pub(super) host: bool,
    pub(super) route: bool,
}

/// The attributes of a request, read once and normalized.
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

/// Path, host and route as the transport provides them.
#[derive(Clone, Copy)]
pub(super) struct RawAttributes<'a> {
    path: Option<&'a [u8]>,
    host: Option<&'a [u8]>,
    route: Option<&'a [u8]>,
}

/// Buffers for a path and a host that have to be normalized.
pub(super) struct NormalizationBuffers {
    path: [u8; PATH_CAPACITY],
    host: [u8; HOST_CAPACITY],
}

impl<'a> RawAttributes<'a> {
    /// If only the route is known, it is used as the path, because a template matches itself.
    pub(super) fn new(request: &'a dyn Attributes, needed: NeededAttributes) -> Self {
        let get = |is_needed: bool, attribute: &Attribute| {
            is_needed.then(|| request.get(attribute)).flatten()
        };
        let path = get(needed.path, &Attribute::Path);
        let route = get(
            needed.route || (needed.path && path.is_none()),
            &Attribute::Route,
        );
        Self {
            path: path.or(route.filter(|_| needed.path)),
            host: get(needed.host, &Attribute::Host),
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
    /// Views a request whose path and host are already normalized; `None` if they are not.
    pub(super) fn if_normalized(
        request: &'a dyn Attributes,
        attributes: &'a [Attribute],
        needed: NeededAttributes,
        raw: RawAttributes<'a>,
    ) -> Option<Self> {
        let path = match raw.path {
            Some(raw) => Some(path::already_normalized(raw)?),
            None => None,
        };
        if raw.host.is_some_and(has_uppercase) {
            return None;
        }
        Some(Self::new(request, attributes, needed, raw, path, raw.host))
    }

    /// Views any request. The second value is whether the path or the host was too long to normalize.
    pub(super) fn normalized(
        request: &'a dyn Attributes,
        attributes: &'a [Attribute],
        needed: NeededAttributes,
        raw: RawAttributes<'a>,
        buffers: &'a mut NormalizationBuffers,
    ) -> (Self, bool) {
        let path_buffer = &mut buffers.path;
        let path = raw.path.map(|raw| match path::already_normalized(raw) {
            Some(path) => path,
            None => path::normalize(raw, path_buffer),
        });
        let host = raw.host.map(|raw| match buffers.host.get_mut(..raw.len()) {
            Some(buffer) if has_uppercase(raw) => {
                buffer.copy_from_slice(raw);
                buffer.make_ascii_lowercase();
                &*buffer
            }
            _ => raw,
        });
        let is_too_long =
            path.is_some_and(|path| path.is_truncated) || host.is_some_and(has_uppercase);
        let view = Self::new(request, attributes, needed, raw, path, host);
        (view, is_too_long)
    }

    fn new(
        request: &'a dyn Attributes,
        attributes: &'a [Attribute],
        needed: NeededAttributes,
        raw: RawAttributes<'a>,
        path: Option<NormalizedPath<'a>>,
        host: Option<&'a [u8]>,
    ) -> Self {
        Self {
            request,
            attributes,
            ip: if needed.ip { request.ip() } else { None },
            path,
            route: raw.route,
            host,
            fetched: 0,
            values: [None; CACHED_ATTRIBUTES],
        }
    }

    /// The bytes of an attribute. Paths have no trailing slash; addresses have no bytes.
    pub(super) fn value(&mut self, subject: Subject) -> Option<&'a [u8]> {
        match subject {
            Subject::Ip => None,
            Subject::Path => self.path.map(NormalizedPath::without_trailing_slash),
            Subject::Host => self.host,
            Subject::Route => self.route,
            Subject::Other(index) => self.other(index),
        }
    }

    /// Whether the attribute is present.
    pub(super) fn has(&mut self, subject: Subject) -> bool {
        match subject {
            Subject::Ip => self.ip.is_some(),
            other => self.value(other).is_some(),
        }
    }

    fn other(&mut self, index: usize) -> Option<&'a [u8]> {
        let attribute = self.attributes.get(index)?;
        let Some(value) = self.values.get_mut(index) else {
            return self.request.get(attribute);
        };
        if self.fetched >> index & 1 == 0 {
            self.fetched |= 1 << index;
            *value = self.request.get(attribute);
        }
        *value
    }
}

fn has_uppercase(host: &[u8]) -> bool {
    host.iter().any(u8::is_ascii_uppercase)
}
