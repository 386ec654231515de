//! The oracle: it knows workers and service time at every instant, fills every worker and starts the newest requests first.
//!
//! A request is shed when it cannot be in time any more.

use std::collections::VecDeque;

use tollgate_core::{Nanos, Timestamp};
use tollgate_overload::MAX_CLASSES;

use super::controller::{Controller, Release, SimulatedRequest};

pub(super) struct Oracle {
    deadline: Nanos,
    service: Nanos,
    workers: u32,
    in_flight: u32,
    waiting: [VecDeque<SimulatedRequest>; MAX_CLASSES],
}

impl Oracle {
    pub(super) fn new(deadline: Nanos) -> Self {
        Self {
            deadline,
            service: Nanos::ZERO,
            workers: 0,
            in_flight: 0,
            waiting: std::array::from_fn(|_| VecDeque::new()),
        }
    }

    fn start_waiting(&mut self, now: Timestamp, release: &mut Release) {
        let end = now.after(self.service);
        for class in &mut self.waiting {
            while let Some(request) =
                class.pop_front_if(|oldest| end.since(oldest.arrived) > self.deadline)
            {
                release.shed.push(request);
            }
            while self.in_flight < self.workers
                && let Some(request) = class.pop_back()
            {
                self.in_flight += 1;
                release.started.push(request);
            }
        }
    }
}

impl Controller for Oracle {
    fn arrive(&mut self, now: Timestamp, request: SimulatedRequest, release: &mut Release) {
        if let Some(class) = self.waiting.get_mut(request.class.index()) {
            class.push_back(request);
        }
        self.start_waiting(now, release);
    }

    fn finish(&mut self, now: Timestamp, _started: Timestamp, release: &mut Release) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.start_waiting(now, release);
    }

    fn limit(&self) -> u32 {
        self.workers
    }

    fn observe_capacity(&mut self, workers: u32, service: Nanos) {
        (self.workers, self.service) = (workers, service);
    }
}
