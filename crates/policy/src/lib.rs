//! A policy file becomes checked, compiled rules: who gets a quota, how much of it, and what happens when it is spent.
//!
//! The way of a file: [`source`] reads YAML, TOML or JSON into one tree that knows its lines and columns; `read` makes
//! the [`model`] of it, which is what the file says, in full and checked; `compile` makes [`rules`] of the model, which is
//! what the engine asks. After the file is read everything is pure. Must not know: stores, clocks, sockets.

pub mod attributes;
pub mod compile;
pub mod explain;
pub mod model;
pub mod rules;
pub mod source;
mod words_for;

#[cfg(test)]
mod generate;
#[cfg(test)]
mod sample;
