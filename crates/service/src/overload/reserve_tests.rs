//! The reserve together with the adaptive limit, before an upstream with workers and an unbounded queue, in time that is handed in.

use std::collections::VecDeque;
use std::sync::Arc;

use tollgate_core::{Nanos, Timestamp};
use tollgate_overload::{Completion, PriorityClass};
use tollgate_policy::model::{Mode, OverloadSpec};

use super::control::{OverloadControl, ProcessSignals};
use super::retries::Attempt;
use super::{OverloadEntry, OverloadPermit, OverloadTicket};

const SERVICE: Nanos = Nanos::from_millis(50);
const CRITICAL: usize = 0;
const DEFAULT: usize = 1;

/// An upstream behind a control, and clients that always want more.
struct SaturatedUpstream {
    control: Arc<OverloadControl>,
    spec: OverloadSpec,
    workers: usize,
    /// The most requests in flight that clients want of each class.
    demand: [usize; 2],
    now: Timestamp,
    waiting: VecDeque<(OverloadPermit, usize)>,
    running: VecDeque<(Timestamp, OverloadPermit, usize)>,
    in_flight: [usize; 2],
    most_others: usize,
}

impl SaturatedUpstream {
    fn new(adaptive_concurrency: Mode, workers: usize, demand: [usize; 2]) -> Self {
        Self {
            control: Arc::default(),
            spec: OverloadSpec {
                adaptive_concurrency,
                reserve: Mode::Enforce,
                ..OverloadSpec::default()
            },
            workers,
            demand,
            now: Timestamp::from_secs(1_000),
            waiting: VecDeque::new(),
            running: VecDeque::new(),
            in_flight: [0; 2],
            most_others: 0,
        }
    }

    fn run(&mut self, seconds: u64) {
        let end = self.now.after(Nanos::from_secs(seconds));
        self.most_others = 0;
        while self.now < end {
            for class in [CRITICAL, DEFAULT] {
                while self.in_flight[class] < self.demand[class] && self.send(class) {}
            }
            self.most_others = self.most_others.max(self.in_flight[DEFAULT]);
            while self.running.len() < self.workers
                && let Some((permit, class)) = self.waiting.pop_front()
            {
                // Spread over a microsecond each, or all would be done at once.
                let offset = Nanos::from_micros(self.running.len() as u64);
                let done = self.now.after(SERVICE).after(offset);
                self.running.push_back((done, permit, class));
            }
            let first = (0..self.running.len()).min_by_key(|index| self.running[*index].0);
            let (done, permit, class) = self.running.remove(first.unwrap()).unwrap();
            self.now = done;
            self.in_flight[class] -= 1;
            permit.complete(done, Completion::Served);
        }
    }

    /// Returns whether the request was admitted.
    fn send(&mut self, class: usize) -> bool {
        let ticket = OverloadTicket {
            target: Arc::clone(&self.control),
            class: PriorityClass::new(class).unwrap(),
            tenant: Some(1),
            attempt: Attempt::Unknown,
            overload: self.spec,
        };
        let signals = ProcessSignals::default();
        if self.control.check(self.now, &ticket, 2, signals).is_err() {
            return false;
        }
        // A request that would have to wait is gone at once.
        let OverloadEntry::Started(permit) =
            OverloadControl::enter(&self.control, self.now, &ticket)
        else {
            return false;
        };
        self.in_flight[class] += 1;
        self.waiting.push_back((permit, class));
        true
    }

    fn capacity(&self) -> Option<u64> {
        self.control.usage().map(|usage| usage.capacity)
    }

    fn assert_capacity(&self, workers: u64) {
        let capacity = self.capacity().unwrap();
        assert!(
            (workers * 17 / 20..=workers * 5 / 4).contains(&capacity),
            "a capacity of {capacity} for {workers} workers"
        );
    }
}

/// After the first measurement the limit was twice the requests in flight, and the reserve already kept other classes below 80 % of it.
/// So the limit was never in use again, and without critical requests an upstream with 300 workers got 51 requests at a time.
#[test]
fn the_reserve_does_not_keep_the_limit_from_finding_the_capacity() {
    let mut upstream = SaturatedUpstream::new(Mode::Enforce, 300, [0, 3_000]);
    upstream.run(10);
    upstream.assert_capacity(300);
}

/// The same for a capacity that was found in a bad time: nothing was measured afterwards, because the reserve kept the limit from being
/// used.
#[test]
fn an_idle_reserve_is_lent_at_times_so_that_a_limit_can_grow_again() {
    for mode in [Mode::Enforce, Mode::Shadow] {
        let mut upstream = SaturatedUpstream::new(mode, 60, [0, 40]);
        upstream.run(2);
        upstream.demand = [0, 400];
        upstream.run(10);
        let before = upstream.capacity().unwrap();
        // Traffic that does not follow the limit shows less exactly where the knee is.
        assert!((51..=85).contains(&before), "{mode:?}: {before}");
        upstream.run(10);
        let most = upstream.most_others as u64;
        assert!(most <= before * 9 / 8, "{mode:?}: {most} of {before}");
        upstream.workers = 180;
        upstream.run(60);
        let after = upstream.capacity().unwrap();
        assert!((153..=230).contains(&after), "{mode:?}: {after}");
        // A reserve that critical requests use is not lent.
        let reserve = after.div_ceil(5);
        upstream.demand[CRITICAL] = usize::try_from(reserve).unwrap();
        upstream.run(2);
        upstream.run(20);
        let room = after.max(upstream.capacity().unwrap()) * 9 / 10;
        assert!(upstream.most_others as u64 <= room, "{mode:?}");
    }
}

/// A limit that is not enforced is not followed by the traffic. The first measurement made it twice the requests in flight, and
/// that was reported to the fleet as what the upstream can do. Later measurements with the same traffic raised it to the traffic.
#[test]
fn a_limit_that_is_only_observed_claims_no_capacity_without_evidence() {
    let mut upstream = SaturatedUpstream::new(Mode::Shadow, 20, [80, 0]);
    upstream.run(5);
    assert_eq!(upstream.capacity(), None, "the same traffic all the time");
    // More traffic brings no throughput: the knee is below what was there before.
    upstream.demand = [200, 0];
    upstream.run(5);
    let capacity = upstream.capacity().unwrap();
    assert!(capacity <= 80, "{capacity}");
    upstream.run(30);
    assert_eq!(
        upstream.capacity(),
        Some(capacity),
        "the same traffic again"
    );
}

/// Requests that hang are no success: nothing is measured while nothing ends.
#[test]
fn requests_that_are_held_do_not_move_the_limit() {
    let mut upstream = SaturatedUpstream::new(Mode::Shadow, 60, [40, 0]);
    upstream.run(2);
    upstream.demand = [400, 0];
    upstream.run(2);
    let capacity = upstream.capacity();
    assert!(capacity.is_some());
    upstream.workers = 0;
    upstream.demand = [4_000, 0];
    for _ in 0..10_000 {
        upstream.now = upstream.now.after(Nanos::from_millis(10));
        upstream.send(CRITICAL);
    }
    assert_eq!(upstream.capacity(), capacity);
}
