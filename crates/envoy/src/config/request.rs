//! What Envoy asks, as far as deciding needs it: a domain, descriptors of entries, and how much each counts.
//!
//! Must not know: protobuf, gRPC, files.

use std::fmt;

use tollgate_core::InvalidQuota;

use super::window_unit::WindowUnit;

/// The most descriptors in one request.
pub const MAX_DESCRIPTORS: usize = 32;

/// The most entries in one descriptor, and the most levels in a file.
pub const MAX_ENTRIES: usize = 16;

/// One question.
#[derive(Clone, Copy, Debug)]
pub struct RlsRequest<'a> {
    /// Which domain's descriptors are looked at.
    pub domain: &'a str,
    /// What is known of the request, several times over; each is decided and charged on its own.
    pub descriptors: &'a [Descriptor<'a>],
    /// How much each descriptor counts that does not say so itself. Zero is one.
    pub hits_addend: u32,
}

/// One list of entries.
#[derive(Clone, Copy, Debug, Default)]
pub struct Descriptor<'a> {
    /// In order: they are walked through level by level.
    pub entries: &'a [DescriptorEntry<'a>],
    /// A limit to be used instead of the file's.
    pub limit: Option<LimitOverride>,
    /// How much it counts. Zero only looks.
    pub hits_addend: Option<u64>,
    /// Whether the hits are given back instead. Such a descriptor is never over its limit.
    pub is_negative_hits: bool,
}

/// A key and its value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct DescriptorEntry<'a> {
    /// Such as `remote_address`.
    pub key: &'a str,
    /// May be empty.
    pub value: &'a str,
}

/// A limit that comes with a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitOverride {
    /// How many.
    pub requests_per_unit: u32,
    /// In which time.
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
    /// These entries, counting what the request says.
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
    /// One hit for each descriptor.
    #[must_use]
    pub const fn new(domain: &'a str, descriptors: &'a [Descriptor<'a>]) -> Self {
        Self {
            domain,
            descriptors,
            hits_addend: 0,
        }
    }

    /// How much a descriptor of this request counts.
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
    /// Values name people and secrets: only the key is shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}=({} bytes)", self.key, self.value.len())
    }
}

/// Why a request cannot be decided at all. Nothing was charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BadRequest {
    /// It names no domain.
    EmptyDomain,
    /// It has no descriptors.
    NoDescriptors,
    /// It has more than [`MAX_DESCRIPTORS`].
    TooManyDescriptors {
        /// How many it has.
        count: usize,
    },
    /// A descriptor has more than [`MAX_ENTRIES`].
    TooManyEntries {
        /// How many it has.
        count: usize,
    },
    /// A limit that came with a descriptor cannot be kept.
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
