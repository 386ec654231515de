//! Tests of whole responses: golden tables, properties of any input, and allocations.
//!
//! Must not know: how anything is written.

mod allocation;
mod golden;
mod headers_page;
mod policy_properties;
mod problems;
mod properties;
mod retry_after;
mod round_trip;
mod support;
mod vendor_responses;
