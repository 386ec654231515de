//! The state of overload control, for metrics and operators.

use tollgate_policy::model::{OverloadSpec, ShedMechanism};

/// The state of overload control.
#[derive(Clone, Debug, PartialEq)]
pub struct OverloadStatus {
    /// The modes in force: those of the policy, weakened by operators' switches.
    pub overload: OverloadSpec,
    /// The share of its processors that this process uses; `None` if it is not measured.
    pub cpu: Option<f64>,
    /// The targets that have had a request.
    pub targets: Vec<OverloadTargetStatus>,
    /// What was shed, over all targets.
    pub shed: Vec<ShedCount>,
    /// Responses that told a client its credits, and those that would have in shadow mode.
    pub credit_offers: (u64, u64),
}

/// The state of one target.
#[derive(Clone, Debug, PartialEq)]
pub struct OverloadTargetStatus {
    /// The name of the upstream. Empty if the transport has none.
    pub upstream: Box<str>,
    /// The route. Empty if the transport has none.
    pub route: Box<str>,
    /// The concurrency limit.
    pub limit: u32,
    /// What the upstream can do at a time. `None` before it was found: then `reserve` and the requests in flight shed nothing.
    pub capacity: Option<u32>,
    /// The requests in flight.
    pub in_flight: u32,
    /// The requests that wait.
    pub queued: usize,
    /// The utilization that was observed last; 1 means saturated.
    pub utilization: f64,
    /// What the peers of this node reported of the same target. `None` without a fleet, or without its store.
    pub fleet: Option<FleetUsageStatus>,
    /// The credits of its clients. `None` while credits are off.
    pub credits: Option<CreditStatus>,
    /// Of each class by its name, the percentage that the utilization shedder sheds.
    pub shed_percent: Vec<(Box<str>, u8)>,
}

/// The credits of a target's clients.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CreditStatus {
    /// The clients that have credits.
    pub clients: usize,
    /// Their credits for each second.
    pub issued_per_second: f64,
    /// The requests that the upstream can do in a second, as far as is known.
    pub capacity_per_second: f64,
}

/// The usage of a target on all nodes of a fleet that reported it, this one included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FleetUsageStatus {
    /// The nodes.
    pub nodes: usize,
    /// The sum of their concurrency limits.
    pub limit: u64,
    /// Their requests of the first class in flight.
    pub critical: u64,
    /// Their requests of all other classes in flight.
    pub others: u64,
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
