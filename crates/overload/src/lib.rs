//! Overload control as pure state machines: what a server can afford, where rate limits count what callers do.
//!
//! [`AdaptiveLimit`] finds the concurrency limit of an upstream from its throughput, latency and requests in flight.
//! [`PriorityQueue`] holds requests above the limit for a bounded time. [`ConcurrencyGate`] is both together.
//! [`UtilizationShedder`] and [`ReservedShare`] shed classes of low priority, by the usage of a whole fleet with [`PeerUsage`];
//! a [`ReserveLoan`] keeps the limit measurable meanwhile. [`RetryBudget`] bounds retries. [`CreditLedger`] divides the capacity
//! among clients.
//!
//! Time is handed in as a [`Timestamp`](tollgate_core::Timestamp). Must not know: clocks, locks around a state machine, HTTP,
//! policies, sockets.
#![forbid(unsafe_code)]
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod adaptive_limit;
mod concurrency_gate;
mod credit_ledger;
mod fleet_usage;
mod priority_class;
mod priority_queue;
mod reserve_loan;
mod reserved_share;
mod retry_budget;
mod utilization_shedder;

pub use adaptive_limit::{AdaptiveLimit, Completion, MAX_LIMIT};
pub use concurrency_gate::{ConcurrencyGate, GateOutcome, QueueOccupancy};
pub use credit_ledger::{CreditClient, CreditLedger, CreditOffer, MAX_CREDIT_CLIENTS};
pub use fleet_usage::{PeerUsage, Usage};
pub use priority_class::{MAX_CLASSES, PriorityClass};
pub use priority_queue::{PriorityQueue, PushOutcome};
pub use reserve_loan::ReserveLoan;
pub use reserved_share::ReservedShare;
pub use retry_budget::RetryBudget;
pub use utilization_shedder::{UtilizationShedder, UtilizationSignals};
