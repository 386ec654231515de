//! Any algorithm behind one interface: a limit, its state, an operation, a transition.
//!
//! Stores keep [`State`] and apply [`Edit`]s; transports and policies use [`Limit`]s and [`Op`]s. Nothing here decides: each call goes to
//! the algorithm.
//!
//! Must not know: clocks, keys, stores.

pub(crate) mod algorithm;
mod batch;
mod op;
mod quota;
mod state;
mod when_full;

pub use algorithm::{AlgorithmKind, RefillPeriod, StateSize, UsageScale};
pub use batch::{LimitReply, StateCheck, decide_all};
pub use op::{Op, OpError};
pub use quota::{Limit, Quota};
pub use state::{Edit, State};
pub use when_full::WhenFull;

/// The former name of [`StateCheck`]. The next release removes it.
#[doc(hidden)]
#[deprecated(note = "renamed to `StateCheck`")]
pub type Check<'a> = StateCheck<'a>;
/// The former name of [`LimitReply`]. The next release removes it.
#[doc(hidden)]
#[deprecated(note = "renamed to `LimitReply`")]
pub type Answer = LimitReply;
