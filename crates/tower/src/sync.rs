//! The locks of a permit. A model puts those of loom in their place (`tests/permit_model.rs`).
//!
//! Must not know: what they guard.

pub(crate) use std::sync::{Arc, Mutex, PoisonError};
