//! What the engine asks: which rules a request falls under, whose quota each is, how much it grants and what it costs.
//!
//! Everything here is made once, when a policy is compiled, and only read afterwards; nothing on the way of a request
//! allocates. Must not know: stores, clocks, files.

mod buffer;
mod meter;
mod recipe;

pub use buffer::{KEY_ROOM, KeyBuffer, Keyed};
pub use meter::{Chosen, Meter, Role};
pub use recipe::{Recipe, Shape, sharing};

use crate::model::{Consistency, Mode, OnStoreFailure, Penalty, Percent};
use tollgate_core::Nanos;

/// One compiled limit. Its meters are what a store is asked about.
#[derive(Debug)]
pub struct Rule {
    /// As the file names it.
    pub name: Box<str>,
    /// Its meters: one per window or level that must admit, and those that penalties, distinct counting, a local
    /// bucket or a candidate need. At least one.
    pub meters: Box<[Meter]>,
    /// Whether it is enforced.
    pub mode: Mode,
    /// For which share of keys.
    pub enforce: Percent,
    /// Denials shorter than this become waits.
    pub wait: Option<Nanos>,
    /// What a denial costs.
    pub penalty: Penalty,
    /// Never denies, charges into debt.
    pub charge_always: bool,
    /// What to decide without the shared store.
    pub on_store_failure: OnStoreFailure,
    /// How a fleet shares it.
    pub consistency: Consistency,
    /// The status of a denial.
    pub status: u16,
    /// The message of a denial.
    pub message: Option<Box<str>>,
    /// The opaque, stable id of the bucket it shares with others, if it does (16 hexadecimal digits).
    pub bucket: Option<Box<str>>,
}
