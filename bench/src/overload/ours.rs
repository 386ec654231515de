//! The product's gate in the simulation.

use tollgate_core::Timestamp;
use tollgate_overload::{Completion, ConcurrencyGate, GateOutcome};

use super::controller::{Controller, Release, SimulatedRequest};

pub(super) struct Ours {
    gate: ConcurrencyGate<SimulatedRequest>,
}

impl Ours {
    pub(super) fn new(now: Timestamp) -> Self {
        Self {
            gate: ConcurrencyGate::new(now),
        }
    }
}

impl Controller for Ours {
    fn arrive(&mut self, now: Timestamp, request: SimulatedRequest, release: &mut Release) {
        let shed = |request| release.shed.push(request);
        let outcome = self
            .gate
            .arrive(now, request.class, request.tenant, request, shed);
        match outcome {
            GateOutcome::Started(request) => release.started.push(request),
            GateOutcome::Queued => {}
            GateOutcome::Shed(request) => release.shed.push(request),
        }
    }

    fn finish(&mut self, now: Timestamp, started: Timestamp, release: &mut Release) {
        self.gate.finish(now, started, Completion::Served);
        while let Some(request) = self.gate.next(now, |request| release.shed.push(request)) {
            release.started.push(request);
        }
    }

    fn limit(&self) -> u32 {
        self.gate.occupancy().limit
    }
}
