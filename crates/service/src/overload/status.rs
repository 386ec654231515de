//! The state of overload control, for metrics and operators.

use super::shed_counters::ShedMechanism;

/// The state of overload control.
#[derive(Clone, Debug, PartialEq)]
pub struct OverloadStatus {
    /// The concurrency limit.
    pub limit: u32,
    /// The requests in flight.
    pub in_flight: u32,
    /// The requests that wait.
    pub queued: usize,
    /// The utilization that was observed last; 1 means saturated.
    pub utilization: f64,
    /// Of each class by its name, the percentage that the utilization shedder sheds.
    pub shed_percent: Vec<(Box<str>, u8)>,
    /// What was shed.
    pub shed: Vec<ShedCount>,
}

/// The requests of a class that one mechanism shed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShedCount {
    /// The name of the class.
    pub class: Box<str>,
    /// What shed them.
    pub mechanism: ShedMechanism,
    /// Requests that were shed.
    pub enforced: u64,
    /// Requests that would have been shed without shadow mode.
    pub shadow: u64,
}
