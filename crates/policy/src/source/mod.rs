//! The text of a policy as one tree, whatever its format, in which every value knows where it stands.
//!
//! Must not know: what fields there are and what they mean.

mod node;
mod problem;

pub use node::{At, Entry, Node, Place, Value};
pub use problem::{Problem, Problems};
