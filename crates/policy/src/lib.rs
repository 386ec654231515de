//! A policy file becomes checked, compiled rules: who gets a quota, how much of it, and what happens when it is spent.
//!
//! The way of a file: [`source`] reads YAML, TOML or JSON into one tree that knows its lines and columns; `read` makes
//! the [`model`] of it, which is what the file says, in full and checked; `compile` makes [`rules`] of the model, which is
//! what the engine asks. After the file is read everything is pure. Must not know: stores, clocks, sockets.

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

pub use load::{decode_utf8, load, load_bytes, load_path, read_path, read_text};

#[cfg(test)]
mod tests;
