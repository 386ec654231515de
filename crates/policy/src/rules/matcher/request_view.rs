//! A request during matching, under one reading of its path: reads each attribute at most once.
//!
//! Must not know: rules, conditions.

use std::net::IpAddr;

use super::super::host;
use super::super::path::{self, NormalizedPath};
use crate::attributes::{Attribute, Attributes};
use crate::model::PathCase;

/// How many attributes are cached; further ones are read again. The attributes that most conditions use come first.
const CACHED_ATTRIBUTES: usize = 16;

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
    pub(super) path: Option<&'a [u8]>,
    pub(super) host: Option<&'a [u8]>,
    route: Option<&'a [u8]>,
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

impl<'a> RequestView<'a> {
    /// Views a request whose path has one reading and whose host is canonical; `None` otherwise.
    pub(super) fn if_plain(
        request: &'a dyn Attributes,
        attributes: &'a [Attribute],
        needed: NeededAttributes,
        raw: RawAttributes<'a>,
        case: PathCase,
    ) -> Option<Self> {
        let path = match raw.path {
            Some(raw) => {
                let (path, has_uppercase) = path::plain(raw)?;
                if has_uppercase && case != PathCase::Sensitive {
                    return None;
                }
                Some(path)
            }
            None => None,
        };
        if raw.host.is_some_and(|host| !host::is_canonical(host)) {
            return None;
        }
        Some(Self::new(request, attributes, needed, raw, path, raw.host))
    }

    /// Views a request under one reading.
    pub(super) fn new(
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

    /// The request itself.
    pub(super) const fn request(&self) -> &'a dyn Attributes {
        self.request
    }

    /// Sets the value of an attribute that the request spells differently.
    pub(super) fn set_other(&mut self, index: usize, canonical: &'a [u8]) {
        if let Some(place) = self.values.get_mut(index) {
            *place = Some(canonical);
            self.fetched |= 1 << index;
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
