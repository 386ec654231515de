//! The description of every endpoint, for programs and for people.
//!
//! Written by hand beside this file; the tests of this crate ask every endpoint and compare. Must not know: anything
//! else.

/// An OpenAPI 3.1 document.
pub(crate) const DOCUMENT: &str = include_str!("openapi.json");
