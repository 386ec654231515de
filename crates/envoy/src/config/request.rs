//! Envoy's rate limit request: a domain, descriptors of entries, and the hits of each.
//!
//! Must not know: protobuf, gRPC, files.

use std::fmt;

use tollgate_core::InvalidQuota;

use super::window_unit::WindowUnit;

/// The most descriptors in one request.
pub const MAX_DESCRIPTORS: usize = 32;

/// The most entries in one descriptor, and the most levels in a file.
pub const MAX_ENTRIES: usize = 16;

/// A rate limit request.
#[derive(Clone, Copy, Debug)]
pub struct RlsRequest<'a> {
    /// The domain whose rules apply.
    pub domain: &'a str,
    /// The descriptors. Each is decided and charged on its own.
    pub descriptors: &'a [Descriptor<'a>],
    /// The hits of descriptors without hits of their own. Zero means one.
    pub hits_addend: u32,
}

/// A descriptor: a list of entries.
#[derive(Clone, Copy, Debug, Default)]
pub struct Descriptor<'a> {
    /// The entries, one for each level of the rules.
    pub entries: &'a [DescriptorEntry<'a>],
    /// A limit that overrides the file's.
    pub limit: Option<LimitOverride>,
    /// Its hits. Zero is a peek.
    pub hits_addend: Option<u64>,
    /// Whether the hits are refunded. Such a descriptor is never over its limit.
    pub is_negative_hits: bool,
}

/// A key and its value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct DescriptorEntry<'a> {
    /// The key, such as `remote_address`.
    pub key: &'a str,
    /// The value; may be empty.
    pub value: &'a str,
}

/// A limit that a descriptor brings with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitOverride {
    /// The requests that it admits in a window.
    pub requests_per_unit: u32,
    /// The length of the window.
    pub unit: WindowUnit,
}

impl<'a> DescriptorEntry<'a> {
    /// A key and its value.
    #[must_use]
    pub const fn new(key: &'a str, value: &'a str) -> Self {
        Self { key, value }
    }
}

impl<'a> Descriptor<'a> {
    /// A descriptor of these entries, with the request's hits.
    #[must_use]
    pub const fn new(entries: &'a [DescriptorEntry<'a>]) -> Self {
        Self {
            entries,
            limit: None,
            hits_addend: None,
            is_negative_hits: false,
        }
    }
}

impl<'a> RlsRequest<'a> {
    /// A request with one hit for each descriptor.
    #[must_use]
    pub const fn new(domain: &'a str, descriptors: &'a [Descriptor<'a>]) -> Self {
        Self {
            domain,
            descriptors,
            hits_addend: 0,
        }
    }

    /// The hits of a descriptor.
    pub(super) fn hits(&self, descriptor: &Descriptor<'_>) -> u64 {
        let by_request = u64::from(self.hits_addend.max(1));
        descriptor.hits_addend.unwrap_or(by_request)
    }

    pub(super) fn check(&self) -> Result<(), BadRequest> {
        if self.domain.is_empty() {
            return Err(BadRequest::EmptyDomain);
        }
        match self.descriptors.len() {
            0 => return Err(BadRequest::NoDescriptors),
            count if count > MAX_DESCRIPTORS => {
                return Err(BadRequest::TooManyDescriptors { count });
            }
            _ => {}
        }
        let mut entries = self.descriptors.iter().map(|one| one.entries.len());
        match entries.find(|&count| count > MAX_ENTRIES) {
            Some(count) => Err(BadRequest::TooManyEntries { count }),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for DescriptorEntry<'_> {
    /// Values may be personal data and secrets, so only their length is shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}=({} bytes)", self.key, self.value.len())
    }
}

/// Why a request is invalid. Nothing was charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BadRequest {
    /// It names no domain.
    EmptyDomain,
    /// It has no descriptors.
    NoDescriptors,
    /// It has more than [`MAX_DESCRIPTORS`].
    TooManyDescriptors {
        /// The number of descriptors.
        count: usize,
    },
    /// A descriptor has more than [`MAX_ENTRIES`].
    TooManyEntries {
        /// The number of entries.
        count: usize,
    },
    /// An override is not a valid quota.
    Override(InvalidQuota),
}

impl fmt::Display for BadRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EmptyDomain => f.write_str("domain: must not be empty"),
            Self::NoDescriptors => f.write_str("descriptors: must not be empty"),
            Self::TooManyDescriptors { count } => write!(
                f,
                "descriptors: {count} are too many: a request has at most {MAX_DESCRIPTORS}"
            ),
            Self::TooManyEntries { count } => write!(
                f,
                "entries: {count} are too many: a descriptor has at most {MAX_ENTRIES}"
            ),
            Self::Override(reason) => write!(f, "limit: {reason}"),
        }
    }
}

impl std::error::Error for BadRequest {}
