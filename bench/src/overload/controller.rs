//! What decides in a simulation which requests start: the interface, and who implements it.
//!
//! Must not know: the server, traces.

use tollgate_core::{Nanos, Timestamp};
use tollgate_overload::PriorityClass;

use super::oracle::Oracle;
use super::ours::Ours;
use super::published::{Aimd, Gradient2, Limited, StaticLimit, Vegas};

/// A request in the simulation.
#[derive(Clone, Copy, Debug)]
pub struct SimulatedRequest {
    /// When the client sent it.
    pub arrived: Timestamp,
    /// Its class.
    pub class: PriorityClass,
    /// Its tenant.
    pub tenant: u64,
}

/// The requests that a controller lets go: to the server, or back to the client.
#[derive(Debug, Default)]
pub struct Release {
    /// They start now.
    pub started: Vec<SimulatedRequest>,
    /// They are refused now.
    pub shed: Vec<SimulatedRequest>,
}

/// Decides which requests start.
pub trait Controller {
    /// A request arrives.
    fn arrive(&mut self, now: Timestamp, request: SimulatedRequest, release: &mut Release);

    /// A request that started at `started` is done.
    fn finish(&mut self, now: Timestamp, started: Timestamp, release: &mut Release);

    /// The concurrency limit, for plots.
    fn limit(&self) -> u32;

    /// What the server can do from now on. Only the oracle listens.
    fn observe_capacity(&mut self, _workers: u32, _service: Nanos) {}
}

/// Who can be simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControllerKind {
    /// It knows the capacity at every instant.
    Oracle,
    /// The product.
    Ours,
    /// Netflix' Gradient2.
    Gradient2,
    /// Netflix' AIMD with the deadline as its timeout.
    Aimd,
    /// Netflix' Vegas.
    Vegas,
    /// A limit that never changes.
    Static(u32),
}

impl ControllerKind {
    /// A controller that has seen nothing.
    #[must_use]
    pub fn build(self, now: Timestamp, deadline: Nanos) -> Box<dyn Controller> {
        match self {
            Self::Oracle => Box::new(Oracle::new(deadline)),
            Self::Ours => Box::new(Ours::new(now)),
            Self::Gradient2 => Box::new(Limited::new(Gradient2::new())),
            Self::Aimd => Box::new(Limited::new(Aimd::new(deadline))),
            Self::Vegas => Box::new(Limited::new(Vegas::new())),
            Self::Static(limit) => Box::new(Limited::new(StaticLimit(limit))),
        }
    }

    /// The name in tables and plots.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Oracle => "oracle".to_owned(),
            Self::Ours => "tollgate".to_owned(),
            Self::Gradient2 => "gradient2".to_owned(),
            Self::Aimd => "AIMD".to_owned(),
            Self::Vegas => "Vegas".to_owned(),
            Self::Static(limit) => format!("static {limit}"),
        }
    }
}
