//! What is answered to Envoy about a request, whoever decided it and however it is written down.
//!
//! Must not know: protobuf, JSON, policies.

use tollgate_core::Nanos;
use tollgate_http::Words;
use tollgate_policy::envoy::{Code, Metadata};

/// The whole answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Said<'a> {
    pub(crate) overall: Code,
    /// One for each descriptor, in order.
    pub(crate) statuses: &'a [Status<'a>],
    /// Header fields for the response to whoever asks Envoy.
    pub(crate) words: &'a Words,
    /// For whoever reads Envoy's dynamic metadata.
    pub(crate) metadata: Option<&'a Metadata>,
    /// How long the answer is to be held back.
    pub(crate) wait: Nanos,
}

/// What is answered about one descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Status<'a> {
    pub(crate) code: Code,
    pub(crate) limit: Option<Limit<'a>>,
    pub(crate) remaining: u32,
    /// Whole seconds.
    pub(crate) until_reset: Option<u64>,
}

/// A limit, as far as Envoy's messages can say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limit<'a> {
    pub(crate) requests_per_unit: u32,
    /// The number of the unit; zero if there is none.
    pub(crate) unit: i32,
    pub(crate) name: &'a str,
}
