//! Reads, checks and compiles policy files: which requests are limited, by which quota, and what happens on a denial.
//!
//! [`source`] parses YAML, TOML or JSON into one tree with lines and columns. [`read`] turns the tree into the
//! [`model`] and checks it. [`compile`] turns the model into [`rules`], which the engine uses. Only `load` does IO.
//! Must not know: stores, clocks, sockets.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod algorithm;
pub mod attributes;
mod check;
pub mod compile;
pub mod explain;
pub mod grammar;
pub mod humanize;
mod load;
pub mod model;
pub mod read;
pub mod reference;
pub mod rules;
pub mod schema;
pub mod source;
mod warn;

pub use load::{
    decode_utf8, load, load_bytes, load_path, load_with_warnings, read_path, read_text,
};

#[cfg(test)]
mod tests;
