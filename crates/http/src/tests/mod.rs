//! What holds for whole answers: golden tables, promises on any input, and that nothing is allocated.
//!
//! Must not know: how anything is written.

mod allocation;
mod golden;
mod headers_page;
mod problems;
mod properties;
mod retry_after;
mod support;
