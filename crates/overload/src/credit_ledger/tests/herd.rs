//! Clients that come back together after an outage: those that respect their credits, beside those that only wait for `Retry-After`.
//!
//! Both kinds add a random part of a second to a wait, because fields have whole seconds. The server sheds by its adaptive limit and
//! its queue, as in production. Time is simulated.

use std::collections::{BTreeMap, VecDeque};

use super::*;
use crate::{Completion, ConcurrencyGate, GateOutcome};

const WORKERS: usize = 60;
const SERVICE: Nanos = Nanos::from_millis(50);
/// Three thousand clients want a request a second each: 2.5 times what the workers can do.
const CLIENTS: usize = 3_000;
const CAPACITY: f64 = 1_200.0;
/// Until then the server is overloaded, then nobody can reach it, then all clients come at once.
const OUTAGE: Timestamp = Timestamp::from_secs(115);
const RECOVERY: Timestamp = Timestamp::from_secs(125);
const END: u64 = 155;

#[derive(Clone, Copy)]
enum Event {
    Send(usize),
    Done(usize, Timestamp),
}

#[derive(Clone, Copy, Default, Debug)]
struct SecondCounts {
    arrived: u32,
    shed: u32,
    done: u32,
}

struct Herd {
    events: BTreeMap<(Timestamp, u64), Event>,
    number: u64,
    random: u64,
    gate: ConcurrencyGate<usize>,
    /// Started requests that wait for a worker: the adaptive limit may be above the workers.
    backlog: VecDeque<(usize, Timestamp)>,
    busy: usize,
    ledger: CreditLedger,
    has_credits: bool,
    counts: Vec<SecondCounts>,
}

impl Herd {
    fn run(has_credits: bool, seed: u64) -> Vec<SecondCounts> {
        let start = Timestamp::from_secs(100);
        let mut herd = Self {
            events: BTreeMap::new(),
            number: 0,
            random: seed,
            gate: ConcurrencyGate::new(start),
            backlog: VecDeque::new(),
            busy: 0,
            ledger: CreditLedger::new(start),
            has_credits,
            counts: vec![SecondCounts::default(); usize::try_from(END).unwrap()],
        };
        for id in 0..CLIENTS {
            let first = herd.part_of_second();
            herd.push(start.after(first), Event::Send(id));
        }
        while let Some(((now, _), event)) = herd.events.pop_first() {
            if now >= Timestamp::from_secs(END) {
                break;
            }
            match event {
                Event::Send(_) if now >= OUTAGE && now < RECOVERY => {
                    herd.push(RECOVERY, event);
                }
                Event::Send(id) => herd.send(now, id),
                Event::Done(id, started) => herd.finish(now, id, started),
            }
        }
        herd.counts
    }

    fn push(&mut self, at: Timestamp, event: Event) {
        self.number += 1;
        self.events.insert((at, self.number), event);
    }

    fn part_of_second(&mut self) -> Nanos {
        Nanos::from_nanos(random(&mut self.random) % 1_000_000_000)
    }

    fn count(&mut self, now: Timestamp) -> &mut SecondCounts {
        &mut self.counts[usize::try_from(now.as_nanos() / 1_000_000_000).unwrap()]
    }

    fn send(&mut self, now: Timestamp, id: usize) {
        self.count(now).arrived += 1;
        let mut shed = Vec::new();
        let is_full = self.gate.is_full_for(PriorityClass::CRITICAL);
        if !is_full && self.gate.try_start(now, |id| shed.push(id)) {
            self.start(now, id);
        } else if is_full {
            shed.push(id);
        } else {
            let class = PriorityClass::CRITICAL;
            let outcome = self
                .gate
                .enqueue(now, class, id as u64, id, |id| shed.push(id));
            if !matches!(outcome, GateOutcome::Queued) {
                shed.push(id);
            }
        }
        shed.into_iter().for_each(|id| self.refuse(now, id));
    }

    fn start(&mut self, now: Timestamp, id: usize) {
        self.backlog.push_back((id, now));
        self.work(now);
    }

    fn work(&mut self, now: Timestamp) {
        while self.busy < WORKERS
            && let Some((id, started)) = self.backlog.pop_front()
        {
            self.busy += 1;
            self.push(now.after(SERVICE), Event::Done(id, started));
        }
    }

    fn finish(&mut self, now: Timestamp, id: usize, started: Timestamp) {
        self.busy -= 1;
        self.count(now).done += 1;
        self.gate.finish(now, started, Completion::Served);
        let mut shed = Vec::new();
        while let Some(next) = self.gate.next(now, |id| shed.push(id)) {
            self.backlog.push_back((next, now));
        }
        self.work(now);
        shed.into_iter().for_each(|id| self.refuse(now, id));
        let rate = self.gate.capacity_per_second();
        let offer = self.ledger.record_request(now, client(id), rate);
        // The client thinks for a second.
        let wait = match offer.filter(|offer| self.has_credits && offer.remaining == 0) {
            Some(offer) => self.told(offer.valid_for),
            None => Nanos::SECOND,
        };
        self.push(now.after(wait), Event::Send(id));
    }

    fn refuse(&mut self, now: Timestamp, id: usize) {
        self.count(now).shed += 1;
        let rate = self.gate.capacity_per_second();
        let offer = self.ledger.record_refusal(now, client(id), rate);
        let told = match offer.filter(|_| self.has_credits) {
            Some(offer) => offer.valid_for,
            None => Nanos::SECOND,
        };
        let wait = self.told(told);
        self.push(now.after(wait), Event::Send(id));
    }

    /// What a client waits: whole seconds, and a random part of one.
    fn told(&mut self, wait: Nanos) -> Nanos {
        let whole = wait.as_nanos().div_ceil(1_000_000_000);
        Nanos::from_secs(whole).saturating_add(self.part_of_second())
    }
}

/// The most requests in a second after the first one of the recovery, the share that was shed in that time, and the responses in a second.
fn after_outage(has_credits: bool, seed: u64) -> (u32, f64, f64) {
    let counts = Herd::run(has_credits, seed);
    let first = usize::try_from(RECOVERY.as_nanos() / 1_000_000_000).unwrap();
    let later = &counts[first + 1..];
    let sum = |field: fn(&SecondCounts) -> u32| f64::from(later.iter().map(field).sum::<u32>());
    let arrived = sum(|second| second.arrived);
    let peak = later.iter().map(|second| second.arrived).max().unwrap();
    let done = sum(|second| second.done) / later.len() as f64;
    (peak, sum(|second| second.shed) / arrived, done)
}

#[test]
fn clients_with_credits_form_no_herd_after_an_outage() {
    for seed in 0..5 {
        let (peak, shed, done) = after_outage(true, seed);
        let (plain_peak, plain_shed, plain_done) = after_outage(false, seed);
        assert!(f64::from(peak) <= 1.4 * CAPACITY, "{peak}");
        assert!(f64::from(plain_peak) >= 2.0 * CAPACITY, "{plain_peak}");
        assert!(shed < 0.1 && plain_shed > 0.4, "{shed} and {plain_shed}");
        assert!(done >= 0.9 * CAPACITY, "{done} and {plain_done}");
    }
}
