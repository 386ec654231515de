//! The response to Envoy's rate limit request, independent of the rules and the encoding.
//!
//! Must not know: protobuf, JSON, policies.

use std::cell::RefCell;

use tollgate_core::Nanos;
use tollgate_engine::Ticket;
use tollgate_http::HeaderFields;

use crate::config::{Metadata, RlsCode};

/// The response.
#[derive(Clone, Copy, Debug)]
pub struct RlsResponse<'a> {
    /// The code of the whole request.
    pub overall: RlsCode,
    /// The status of each descriptor, in order.
    pub statuses: &'a [RlsStatus<'a>],
    /// Header fields that Envoy adds to its response.
    pub fields: &'a HeaderFields,
    /// Envoy's dynamic metadata.
    pub metadata: Option<&'a Metadata>,
    /// How long to delay the response.
    pub wait: Nanos,
    /// What to cancel if the client does not wait so long: see [`RateLimitService::acquire_wait`].
    ///
    /// [`RateLimitService::acquire_wait`]: tollgate_service::RateLimitService::acquire_wait
    pub wait_tickets: &'a RefCell<Vec<Ticket>>,
}

/// The status of one descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RlsStatus<'a> {
    /// Whether the descriptor is within its limit.
    pub code: RlsCode,
    /// The limit, if one applies.
    pub limit: Option<RlsLimit<'a>>,
    /// The remaining quota.
    pub remaining: u32,
    /// Whole seconds until the reset.
    pub until_reset: Option<u64>,
}

/// A limit in the terms of Envoy's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RlsLimit<'a> {
    /// The requests that it admits in a unit.
    pub requests_per_unit: u32,
    /// The number of the unit; zero if there is none.
    pub unit: i32,
    /// Its name.
    pub name: &'a str,
}
