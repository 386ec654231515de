//! The simulation: clients that do not wait for one another, a controller, and a server with workers and an unbounded queue.
//!
//! Clients give up at the deadline, but the server does not notice and goes on working. Must not know: who decides, scores.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use tollgate_core::{Nanos, Timestamp};
use tollgate_overload::PriorityClass;

use super::controller::{ControllerKind, Release, SimulatedRequest};
use super::random::Random;
use super::scenarios::{DEADLINE, Scenario, Stage};

/// The width of a bucket.
const BUCKET: Nanos = Nanos::from_millis(10);
const BEGIN: Timestamp = Timestamp::from_secs(1);
const TENANTS: u64 = 1_000;

/// What happened in 10 ms.
#[derive(Clone, Copy, Debug, Default)]
pub struct TimeBucket {
    /// Requests that arrived, by class: critical, sheddable.
    pub arrived: [u32; 2],
    /// Requests that were done in time.
    pub good: [u32; 2],
    /// Requests that were refused.
    pub shed: [u32; 2],
    /// Requests that arrived in this bucket and were done in time later.
    pub good_of_arrived: [u32; 2],
    /// Requests that arrived in this bucket and were refused then or later.
    pub shed_of_arrived: [u32; 2],
    /// The limit when the bucket began.
    pub limit: u32,
    /// The sum of the latencies of `good`, in seconds.
    pub latency: f64,
}

/// What happened.
#[derive(Clone, Debug)]
pub struct Run {
    /// Buckets of 10 ms.
    pub buckets: Vec<TimeBucket>,
}

/// Simulates a trace.
#[must_use]
pub fn run(scenario: &Scenario, kind: ControllerKind) -> Run {
    let mut simulation = Simulation::new(scenario, kind);
    for stage in &scenario.stages {
        simulation.run_stage(stage);
    }
    simulation.finish_until(simulation.end.after(DEADLINE));
    Run {
        buckets: simulation.buckets,
    }
}

struct Simulation {
    controller: Box<dyn super::Controller>,
    random: Random,
    is_service_random: bool,
    workers: u32,
    service: Nanos,
    busy: u32,
    queue: VecDeque<Running>,
    /// The requests that workers have, by the instant at which they are done.
    running: BinaryHeap<Reverse<(Timestamp, u64)>>,
    /// The requests in `running` by their number; a slot is used again.
    slots: Vec<Running>,
    free: Vec<u64>,
    buckets: Vec<TimeBucket>,
    release: Release,
    end: Timestamp,
}

#[derive(Clone, Copy)]
struct Running {
    request: SimulatedRequest,
    started: Timestamp,
}

impl Simulation {
    fn new(scenario: &Scenario, kind: ControllerKind) -> Self {
        Self {
            controller: kind.build(BEGIN, DEADLINE),
            random: Random::new(scenario.seed),
            is_service_random: scenario.is_service_random,
            workers: 0,
            service: Nanos::ZERO,
            busy: 0,
            queue: VecDeque::new(),
            running: BinaryHeap::new(),
            slots: Vec::new(),
            free: Vec::new(),
            buckets: Vec::new(),
            release: Release::default(),
            end: BEGIN,
        }
    }

    fn run_stage(&mut self, stage: &Stage) {
        (self.workers, self.service) = (stage.workers, stage.service);
        self.controller
            .observe_capacity(stage.workers, stage.service);
        let begin = self.end;
        self.end = begin.after(from_seconds(stage.seconds));
        let mut now = begin;
        loop {
            let gap = self.random.exponential() / stage.demand();
            now = now.after(from_seconds(gap));
            if now >= self.end {
                break;
            }
            self.finish_until(now);
            let is_critical = self.random.part() * stage.demand() <= stage.critical;
            let index = usize::from(!is_critical);
            let request = SimulatedRequest {
                arrived: now,
                class: PriorityClass::new(index).unwrap_or(PriorityClass::CRITICAL),
                tenant: self.random.next() % TENANTS,
            };
            self.bucket(now).arrived[index] += 1;
            self.controller.arrive(now, request, &mut self.release);
            self.follow_release(now);
        }
        self.finish_until(self.end);
    }

    /// Ends the requests that are done until `now`.
    fn finish_until(&mut self, now: Timestamp) {
        while let Some(Reverse((done, slot))) = self.running.peek().copied() {
            if done > now {
                break;
            }
            self.running.pop();
            self.free.push(slot);
            let Running { request, started } = self.slots[to_index(slot)];
            self.busy -= 1;
            let latency = done.since(request.arrived);
            if latency <= DEADLINE {
                let index = request.class.index();
                let bucket = self.bucket(done);
                bucket.good[index] += 1;
                bucket.latency += to_seconds(latency);
                self.bucket(request.arrived).good_of_arrived[index] += 1;
            }
            self.controller.finish(done, started, &mut self.release);
            self.follow_release(done);
            self.start_work(done);
        }
    }

    fn follow_release(&mut self, now: Timestamp) {
        let mut release = std::mem::take(&mut self.release);
        for request in release.shed.drain(..) {
            let index = request.class.index();
            self.bucket(now).shed[index] += 1;
            self.bucket(request.arrived).shed_of_arrived[index] += 1;
        }
        for request in release.started.drain(..) {
            self.queue.push_back(Running {
                request,
                started: now,
            });
        }
        self.release = release;
        self.start_work(now);
    }

    fn start_work(&mut self, now: Timestamp) {
        while self.busy < self.workers
            && let Some(next) = self.queue.pop_front()
        {
            self.busy += 1;
            let service = match self.is_service_random {
                true => from_seconds(to_seconds(self.service) * self.random.exponential()),
                false => self.service,
            };
            let slot = self.free.pop().unwrap_or_else(|| {
                self.slots.push(next);
                self.slots.len() as u64 - 1
            });
            self.slots[to_index(slot)] = next;
            self.running.push(Reverse((now.after(service), slot)));
        }
    }

    fn bucket(&mut self, now: Timestamp) -> &mut TimeBucket {
        let index = to_index(now.since(BEGIN).as_nanos() / BUCKET.as_nanos());
        let limit = self.controller.limit();
        while self.buckets.len() <= index {
            self.buckets.push(TimeBucket {
                limit,
                ..TimeBucket::default()
            });
        }
        &mut self.buckets[index]
    }
}

fn to_index(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "times of a simulation are positive and short"
)]
fn from_seconds(seconds: f64) -> Nanos {
    Nanos::from_nanos((seconds * 1e9).round() as u64)
}

#[expect(clippy::cast_precision_loss, reason = "times are short")]
fn to_seconds(span: Nanos) -> f64 {
    span.as_nanos() as f64 / 1e9
}
