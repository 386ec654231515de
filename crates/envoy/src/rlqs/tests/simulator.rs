//! A simulator of a server that assigns shares of one limit, its clients, and an unreliable network: single-threaded, with a
//! simulated clock.

use std::collections::VecDeque;

use tollgate_core::{Nanos, Timestamp};

use crate::rlqs::shares::{AssignmentTimes, SharePool};

pub(super) const SPANS: AssignmentTimes = AssignmentTimes {
    ttl: Nanos::from_secs(15),
    grace: Nanos::from_secs(3),
};
const STEP: Nanos = Nanos::from_millis(100);
/// Envoy's report interval, in steps.
const BETWEEN_REPORTS: u64 = 50;

/// A seeded random number generator (splitmix64).
pub(super) struct SeededRng(u64);

impl SeededRng {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }

    fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }
}

/// A mistake of the server, as a negative control.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Mistake {
    None,
    /// It takes any report as proof that earlier messages arrived.
    NoGrace,
    /// It assigns shares at once after a restart.
    NoWaitAfterRestart,
    /// It frees a client's share as soon as the client disconnects.
    FreesDisconnected,
}

/// The reliability of the network, the clients and the server.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum NetworkConditions {
    Reliable,
    Faulty,
}

pub(super) struct SimulatedClient {
    /// Its claim while it is connected.
    claim: Option<u64>,
    back_at: Timestamp,
    /// The share in use, and its expiry.
    running: Option<(u64, Timestamp)>,
    pub(super) wants: u64,
    next_report: u64,
    coming: VecDeque<(Timestamp, u64)>,
    going: VecDeque<(Timestamp, u64)>,
    /// How often its share changed.
    pub(super) changes: u32,
}

impl SimulatedClient {
    pub(super) fn share(&self) -> u64 {
        self.running.map_or(0, |(share, _)| share)
    }
}

pub(super) struct Simulator {
    pub(super) now: Timestamp,
    pub(super) capacity: u64,
    pool: SharePool,
    pub(super) clients: Vec<SimulatedClient>,
    rng: SeededRng,
    conditions: NetworkConditions,
    mistake: Mistake,
    next_claim: u64,
    steps: u64,
    /// The sum of shares in use over all steps.
    used: u128,
}

impl Simulator {
    pub(super) fn new(
        capacity: u64,
        wants: &[u64],
        conditions: NetworkConditions,
        seed: u64,
    ) -> Self {
        let now = Timestamp::from_secs(1_000);
        let mut rng = SeededRng(seed);
        let clients = wants.iter().map(|wants| SimulatedClient {
            claim: None,
            back_at: now,
            running: None,
            wants: *wants,
            next_report: rng.below(BETWEEN_REPORTS),
            coming: VecDeque::new(),
            going: VecDeque::new(),
            changes: 0,
        });
        Self {
            clients: clients.collect(),
            now,
            capacity,
            pool: SharePool::new(capacity, now),
            rng,
            conditions,
            mistake: Mistake::None,
            next_claim: 0,
            steps: 0,
            used: 0,
        }
    }

    pub(super) fn with_mistake(mut self, mistake: Mistake) -> Self {
        self.mistake = mistake;
        self
    }

    /// The sum of shares in use.
    pub(super) fn running(&self) -> u64 {
        self.clients.iter().map(SimulatedClient::share).sum()
    }

    /// The fraction of the limit in use over the whole time, in percent.
    pub(super) fn use_percent(&self) -> u128 {
        self.used * 100 / u128::from(self.capacity * self.steps)
    }

    /// Runs for `seconds`. The error is the first time at which clients used more than the limit.
    pub(super) fn run(&mut self, seconds: u64) -> Result<(), String> {
        for _ in 0..seconds * 10 {
            self.step();
            self.used += u128::from(self.running());
            assert!(self.mistake != Mistake::None || self.pool.held() <= self.capacity);
            if self.running() > self.capacity {
                let (now, running) = (self.now, self.running());
                return Err(format!("{running} of {} at {now:?}", self.capacity));
            }
        }
        Ok(())
    }

    fn step(&mut self) {
        self.now = self.now.after(STEP);
        self.steps += 1;
        if self.conditions == NetworkConditions::Faulty && self.rng.one_in(2_000) {
            self.restart();
        }
        for index in 0..self.clients.len() {
            self.step_client(index);
        }
        if self.steps.is_multiple_of(10) {
            let spans = self.spans();
            if self.pool.expire(self.now, &spans) || self.steps.is_multiple_of(50) {
                self.send_changed_shares();
            }
        }
    }

    fn spans(&self) -> AssignmentTimes {
        match self.mistake {
            Mistake::NoGrace => AssignmentTimes {
                grace: Nanos::ZERO,
                ..SPANS
            },
            _ => SPANS,
        }
    }

    /// One step of one client.
    fn step_client(&mut self, index: usize) {
        let now = self.now;
        if self.conditions == NetworkConditions::Faulty {
            self.inject_fault(index);
        }
        let client = &mut self.clients[index];
        while let Some((_, share)) = client.coming.pop_front_if(|(at, _)| *at <= now) {
            client.changes += u32::from(client.share() != share);
            client.running = Some((share, now.after(SPANS.ttl)));
        }
        client.running = client.running.filter(|(_, until)| now < *until);
        if client.claim.is_none() && now >= client.back_at {
            client.claim = Some(self.next_claim);
            self.next_claim += 1;
            client.next_report = self.steps;
        }
        if client.claim.is_some() && self.steps >= client.next_report {
            client.next_report = self.steps + BETWEEN_REPORTS;
            let late = self.arrival_time();
            let is_lost = self.conditions == NetworkConditions::Faulty && self.rng.one_in(10);
            let client = &mut self.clients[index];
            if !is_lost {
                client.going.push_back((late, client.wants));
            }
        }
        let client = &mut self.clients[index];
        if let Some((_, wants)) = client.going.pop_front_if(|(at, _)| *at <= now)
            && let Some(claim) = client.claim
        {
            let spans = self.spans();
            self.pool.join(claim, self.capacity);
            self.pool.record_demand(claim, wants);
            self.pool.confirm_delivery(claim, now, &spans);
            self.send_changed_shares();
            self.send_share(index);
        }
    }

    /// The arrival time of a message: at most half of the grace period later, so that a round trip is within it.
    fn arrival_time(&mut self) -> Timestamp {
        let most = SPANS.grace.as_nanos() / 2;
        let delay = match self.conditions {
            NetworkConditions::Reliable => Nanos::from_millis(1),
            NetworkConditions::Faulty => Nanos::from_nanos(self.rng.below(most)),
        };
        self.now.after(delay)
    }

    fn send_changed_shares(&mut self) {
        let news = self.pool.plan(self.now);
        for index in 0..self.clients.len() {
            if self.clients[index]
                .claim
                .is_some_and(|it| news.contains(&it))
            {
                self.send_share(index);
            }
        }
    }

    fn send_share(&mut self, index: usize) {
        let spans = self.spans();
        let late = self.arrival_time();
        let client = &mut self.clients[index];
        if let Some(claim) = client.claim
            && let Some(share) = self.pool.offer(claim, self.now)
        {
            self.pool.record_sent(claim, share, self.now, &spans);
            let last = client.coming.back().map_or(late, |(at, _)| late.max(*at));
            client.coming.push_back((last, share));
        }
    }

    fn inject_fault(&mut self, index: usize) {
        if self.rng.one_in(300) {
            self.clients[index].wants = self.rng.below(3) * self.capacity / 2;
        }
        if self.rng.one_in(400) {
            self.disconnect(index);
        } else if self.rng.one_in(1_000) {
            self.disconnect(index);
            let client = &mut self.clients[index];
            client.running = None;
            client.coming.clear();
        }
    }

    /// Disconnects a client. Some messages to it still arrive; messages from it do not.
    fn disconnect(&mut self, index: usize) {
        let pause = Nanos::from_millis(self.rng.below(10_000));
        let client = &mut self.clients[index];
        let arrives = self.rng.below(client.coming.len() as u64 + 1);
        client.coming.truncate(usize::try_from(arrives).unwrap());
        client.going.clear();
        client.back_at = self.now.after(pause);
        if let Some(claim) = client.claim.take() {
            if self.mistake == Mistake::FreesDisconnected {
                self.pool.record_sent(claim, 0, Timestamp::EPOCH, &SPANS);
                self.pool.confirm_delivery(claim, self.now, &SPANS);
            }
            self.pool.leave(claim);
        }
    }

    fn restart(&mut self) {
        for index in 0..self.clients.len() {
            self.disconnect(index);
        }
        let opens = match self.mistake {
            Mistake::NoWaitAfterRestart => self.now,
            _ => self.now.after(SPANS.hold_time()),
        };
        self.pool = SharePool::new(self.capacity, opens);
    }
}
