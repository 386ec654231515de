//! The HTTP listener: check, reserve, settle and forward-auth over HTTP/1, with JSON, query strings and header fields.
//!
//! [`handler`] is the interface: [`http1`] parses a request and calls an [`HttpHandler`]. `dispatch.rs` implements it for the
//! public API; the admin listener has its own. Must not know: sockets, how a request is decided.

pub(crate) mod bad_input;
mod check;
pub(crate) mod check_request;
pub(crate) mod cross_site;
pub(crate) mod dispatch;
mod field_lines;
pub(crate) mod forward_auth;
mod front_page;
pub(crate) mod handler;
mod http1;
pub(crate) mod http_api;
mod json;
mod list_limits;
mod openapi;
pub(crate) mod prefer;
mod query;
mod report;
pub(crate) mod request_attributes;
pub(crate) mod response;
mod rls_json;
mod routes;
mod serve;
pub(crate) mod verdict_body;
pub(crate) mod wait_queue_full;
pub(crate) mod welcome;

pub(crate) use self::handler::{HttpHandler, HttpRequest};
pub(crate) use self::http1::response_writer::{write_date, write_number};
pub use self::serve::HttpLimits;
pub(crate) use self::serve::serve_http;
