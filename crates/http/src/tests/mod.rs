//! What holds for whole answers: golden tables, promises on any input, and that nothing is allocated.
//!
//! Must not know: how anything is written.

mod allocation;
mod documents;
mod golden;
mod problems;
mod promises;
mod support;
mod waits;
