//! What clients asked for and what replies they got, checked against the promises I-01 to I-15 as far as replies and the store's
//! own state can tell.
//!
//! Every instant is the machine's monotonic clock, so the records of several processes make one history. A decision was made at
//! an unknown instant between request and reply. Every check allows for that: it reports only what no such instant explains.
//! Must not know: how requests are sent, which limiter replied.

mod allowance;
mod availability;
mod bound;
mod coherence;
mod denials;
mod file;
mod keys;
mod permits;
mod record;
mod recorder;
mod spends;
mod sweep;
mod violation;

#[cfg(test)]
mod tests;

pub use allowance::{Allowance, Bucket};
pub use availability::{AvailabilityBounds, availability, degraded_throughout, recovery};
pub use bound::{WorstWindow, bound, bound_of_log};
pub use coherence::{coherence, coherence_of_each};
pub use denials::{Denials, denials};
pub use keys::{not_too_far_ahead, times_to_live};
pub use permits::{PermitLimit, conservation};
pub use record::{History, Operation, Record, RecordedVerdict, ReportedQuota};
pub use recorder::{PendingRecord, RecordedReply, Recorder};
pub use spends::{StoreSpends, all_or_nothing, spends, spends_exactly};
pub use violation::{Promise, Violation};
