//! Any algorithm behind one face: a limit, its state, an operation, an answer.
//!
//! Stores keep [`State`] and carry out [`Edit`]s; transports and policies speak of [`Limit`]s and [`Op`]s. Nothing
//! here decides: each call goes to the algorithm that does.
//!
//! Must not know: clocks, keys, stores.

pub(crate) mod algorithm;
mod batch;
mod op;
mod quota;
mod state;

pub use algorithm::{AlgorithmKind, RefillPeriod, StateSize, UsageScale};
pub use batch::{LimitReply, StateCheck, decide_all};
pub use op::{Op, OpError};
pub use quota::{Limit, Quota};
pub use state::{Edit, State};

/// The former name of [`StateCheck`]. It goes with the next release.
#[doc(hidden)]
pub type Check<'a> = StateCheck<'a>;
/// The former name of [`LimitReply`]. It goes with the next release.
#[doc(hidden)]
pub type Answer = LimitReply;
