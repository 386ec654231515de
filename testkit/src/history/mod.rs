//! What clients asked and were answered, and whether it keeps the promises I-01 to I-15, as far as answers and the store's own
//! state can tell.
//!
//! Every instant is the machine's monotonic clock, so what several processes wrote down makes one history. A decision was
//! made at some instant between its question and its answer, and nobody knows when: every check is sound about that, it
//! complains only of what no such instant explains. Must not know: how anything was asked, which limiter answered.

mod allowance;
mod answers;
mod availability;
mod bound;
mod broken;
mod denials;
mod file;
mod keys;
mod places;
mod record;
mod recorder;
mod spends;
mod sweep;

#[cfg(test)]
mod tests;

pub use allowance::{Allowance, Bucket};
pub use answers::{coherence, coherence_of_each};
pub use availability::{Speed, availability, degraded_throughout, recovery};
pub use bound::{Worst, bound, bound_of_log};
pub use broken::{Broken, Promise};
pub use denials::{Denials, denials};
pub use keys::{not_too_far_ahead, times_to_live};
pub use places::{Places, conservation};
pub use record::{Act, History, Record, Told, Verdict};
pub use recorder::{Asked, Recorder, Said};
pub use spends::{Spent, all_or_nothing, spends, spends_exactly};
