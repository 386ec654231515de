//! The answer to Envoy's rate limit request, whichever rules decided it and however it is written down.
//!
//! Must not know: protobuf, JSON, policies.

use tollgate_core::Nanos;
use tollgate_http::HeaderFields;

use crate::config::{Metadata, RlsCode};

/// The whole answer.
#[derive(Clone, Copy, Debug)]
pub struct RlsResponse<'a> {
    /// Whether the request may go on.
    pub overall: RlsCode,
    /// One for each descriptor, in order.
    pub statuses: &'a [RlsStatus<'a>],
    /// Header fields that Envoy adds to the response to its client.
    pub fields: &'a HeaderFields,
    /// Envoy's dynamic metadata.
    pub metadata: Option<&'a Metadata>,
    /// How long the answer is to be held back.
    pub wait: Nanos,
}

/// The answer about one descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RlsStatus<'a> {
    /// Whether the descriptor is within its limit.
    pub code: RlsCode,
    /// The limit, if one applies.
    pub limit: Option<RlsLimit<'a>>,
    /// What is left of it.
    pub remaining: u32,
    /// Whole seconds until there is more.
    pub until_reset: Option<u64>,
}

/// A limit, as far as Envoy's messages can say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RlsLimit<'a> {
    /// How many requests it admits in a unit.
    pub requests_per_unit: u32,
    /// The number of the unit; zero if there is none.
    pub unit: i32,
    /// Its name.
    pub name: &'a str,
}
