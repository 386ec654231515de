//! The limit against a server of `workers` that serves each request for the same time.

use std::collections::VecDeque;

use tollgate_core::{Nanos, Timestamp};

use super::{AdaptiveLimit, Completion, MAX_LIMIT};

/// A server with workers and an unbounded queue, and clients that always want more.
struct SaturatedServer {
    limit: AdaptiveLimit,
    workers: usize,
    service: Nanos,
    now: Timestamp,
    /// When each request started, and when each worker is done with one.
    waiting: VecDeque<Timestamp>,
    running: VecDeque<(Timestamp, Timestamp)>,
}

impl SaturatedServer {
    fn new(workers: usize, service: Nanos) -> Self {
        let now = Timestamp::from_secs(1);
        Self {
            limit: AdaptiveLimit::new(now),
            workers,
            service,
            now,
            waiting: VecDeque::new(),
            running: VecDeque::new(),
        }
    }

    fn run(&mut self, span: Nanos, completion: Completion) {
        self.run_with(usize::MAX, span, completion);
    }

    /// The same with clients that want at most `most` requests at a time.
    fn run_with(&mut self, most: usize, span: Nanos, completion: Completion) {
        let end = self.now.after(span);
        loop {
            while self.running.len() + self.waiting.len() < most && self.limit.try_start(self.now) {
                self.waiting.push_back(self.now);
            }
            while self.running.len() < self.workers
                && let Some(started) = self.waiting.pop_front()
            {
                // Spread over a microsecond each, or all would be done at once.
                let offset = Nanos::from_micros(self.running.len() as u64);
                let done = self.now.after(self.service).after(offset);
                self.running.push_back((done, started));
            }
            let Some((index, (done, started))) = self
                .running
                .iter()
                .copied()
                .enumerate()
                .min_by_key(|(_, (done, _))| *done)
            else {
                return;
            };
            if done > end {
                self.now = end;
                return;
            }
            self.running.remove(index);
            self.now = done;
            self.limit.finish(done, started, completion);
        }
    }

    fn assert_near(&self, workers: f64) {
        let limit = f64::from(self.limit.limit());
        assert!(
            (0.85 * workers..=1.25 * workers + 2.0).contains(&limit),
            "a limit of {limit} for {workers} workers"
        );
    }
}

#[test]
fn it_finds_the_number_of_workers_without_a_parameter() {
    for workers in [1_usize, 4, 12, 60, 300] {
        let mut server = SaturatedServer::new(workers, Nanos::from_millis(50));
        server.run(Nanos::from_secs(30), Completion::Served);
        server.assert_near(f64::from(u32::try_from(workers).unwrap()));
    }
}

#[test]
fn the_first_limit_that_is_too_high_falls_to_the_workers_and_never_grows() {
    let mut server = SaturatedServer::new(12, Nanos::from_millis(50));
    server.run_with(5, Nanos::from_secs(5), Completion::Served);
    assert_eq!(server.limit.limit(), super::FIRST_LIMIT);
    // Now 32 requests would wait for one another. Without the traffic before, the limit would double first.
    for _ in 0..30 {
        server.run(Nanos::from_millis(100), Completion::Served);
        assert!(server.limit.limit() <= super::FIRST_LIMIT);
    }
    assert!((11..=14).contains(&server.limit.limit()));
    assert!(server.limit.capacity().is_some());
}

#[test]
fn a_first_search_from_far_above_the_workers_stays_near_them() {
    let mut server = SaturatedServer::new(300, Nanos::from_millis(50));
    server.run_with(240, Nanos::from_secs(3), Completion::Served);
    let mut was_above = false;
    for _ in 0..200 {
        server.run(Nanos::from_millis(10), Completion::Served);
        let limit = server.limit.limit();
        was_above |= limit > 300;
        assert!(!was_above || limit > 270, "{limit} of 300");
    }
    assert!(was_above);
    server.assert_near(300.0);
}

#[test]
fn a_slower_service_does_not_move_it_and_fewer_workers_do() {
    let mut server = SaturatedServer::new(120, Nanos::from_millis(50));
    server.run(Nanos::from_secs(10), Completion::Served);
    for millis in [150, 50, 10, 50] {
        server.service = Nanos::from_millis(millis);
        server.run(Nanos::from_secs(10), Completion::Served);
        server.assert_near(120.0);
    }
    server.workers = 30;
    server.run(Nanos::from_secs(20), Completion::Served);
    server.assert_near(30.0);
    server.workers = 90;
    server.run(Nanos::from_secs(20), Completion::Served);
    server.assert_near(90.0);
}

#[test]
fn failures_and_idle_time_teach_it_nothing() {
    let mut server = SaturatedServer::new(60, Nanos::from_millis(50));
    server.run(Nanos::from_secs(10), Completion::Served);
    let before = server.limit.limit();
    server.service = Nanos::from_micros(10);
    server.run(Nanos::from_millis(20), Completion::Ignored);
    assert_eq!(
        server.limit.limit(),
        before,
        "fast failures attract nothing"
    );
    // One request after another never uses the limit.
    let mut limit = AdaptiveLimit::new(Timestamp::EPOCH);
    let first = limit.limit();
    for second in 0..10_000 {
        let started = Timestamp::from_secs(second);
        assert!(limit.try_start(started));
        let end = started.after(Nanos::from_micros(second % 977));
        limit.finish(end, started, Completion::Served);
    }
    assert_eq!(limit.limit(), first);
}

#[test]
fn strange_times_and_too_many_ends_are_harmless() {
    let mut limit = AdaptiveLimit::new(Timestamp::from_secs(100));
    for round in 0..10_000_u64 {
        let _started = limit.try_start(Timestamp::from_secs(round % 7));
        let (now, started) = (Timestamp::from_secs(round % 5), Timestamp::from_secs(50));
        limit.finish(now, started, Completion::Served);
        limit.finish(Timestamp::MAX, Timestamp::EPOCH, Completion::Served);
        assert!((1..=MAX_LIMIT).contains(&limit.limit()));
        assert!(limit.in_flight() <= limit.limit());
    }
}
