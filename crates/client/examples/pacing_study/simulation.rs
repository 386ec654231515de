//! Clients and a server on a simulated network: events in the order of their times.
//!
//! Must not know: what is measured for which claim.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use tollgate_client::Timestamp;

use crate::clients::{Client, NextStep};
use crate::server::{Reply, Server};

/// Throughput is counted in bins of 100 ms.
const BINS_PER_SECOND: usize = 10;

/// What happened.
pub(crate) struct Outcome {
    pub(crate) admitted: Vec<u64>,
    pub(crate) refused: Vec<u64>,
    /// Admitted requests in each tenth of a second.
    pub(crate) admitted_bins: Vec<u32>,
    pub(crate) arrived_bins: Vec<u32>,
    /// The second and the client of each refusal.
    pub(crate) refusals: Vec<(f64, usize)>,
    pub(crate) finished_at: f64,
    pub(crate) server: Server,
}

/// How long requests and responses take, and how late timers are.
#[derive(Clone, Copy)]
pub(crate) struct Network {
    /// The least nanoseconds of one way, and by how much it varies.
    pub(crate) one_way: u64,
    pub(crate) variation: u64,
    /// Timers are late by up to so many nanoseconds, and one in a hundred by up to 50 ms.
    pub(crate) lateness: u64,
}

/// One way takes 15 to 35 ms.
pub(crate) const NETWORK: Network = Network {
    one_way: 15_000_000,
    variation: 20_000_000,
    lateness: 0,
};

impl Outcome {
    pub(crate) fn total_refused(&self) -> u64 {
        self.refused.iter().sum()
    }

    pub(crate) fn utilization(&self, seconds: f64) -> f64 {
        self.admitted.iter().sum::<u64>() as f64 / self.server.quota(seconds)
    }

    /// Jain's index of fairness: one if all clients have the same.
    pub(crate) fn fairness(&self) -> f64 {
        let sum: f64 = self.admitted.iter().map(|count| *count as f64).sum();
        let squares: f64 = self
            .admitted
            .iter()
            .map(|count| (*count as f64).powi(2))
            .sum();
        sum * sum / (squares * self.admitted.len() as f64)
    }

    /// The seconds from `from` until a second has at least 90 % of `rate` admitted requests.
    pub(crate) fn recovery(&self, from: f64, rate: f64) -> f64 {
        let first = (from * BINS_PER_SECOND as f64) as usize;
        let bins = self.admitted_bins.get(first..).unwrap_or_default();
        let windows = bins.windows(BINS_PER_SECOND);
        let is_back = |window: &[u32]| f64::from(window.iter().sum::<u32>()) >= rate * 0.9;
        let index = windows.into_iter().position(is_back);
        index.map_or(f64::INFINITY, |bin| bin as f64 / BINS_PER_SECOND as f64)
    }

    /// The most requests that arrived in one of the first tenths of a second, as a rate.
    pub(crate) fn arrivals(&self, from: f64) -> u32 {
        let first = (from * BINS_PER_SECOND as f64) as usize;
        self.arrived_bins
            .iter()
            .skip(first)
            .take(BINS_PER_SECOND)
            .sum()
    }
}

enum Event {
    Wake(usize),
    Arrive(usize, u64),
    Respond(usize, u64, Reply),
}

/// A run of some clients against a server.
pub(crate) struct Simulation<'a> {
    clients: Vec<Box<dyn Client + 'a>>,
    server: Server,
    events: BinaryHeap<Reverse<(u64, u64)>>,
    pending: std::collections::HashMap<u64, Event>,
    sequence: u64,
    requests: u64,
    /// When each client is woken next.
    wakeups: Vec<u64>,
    /// The requests that each client still has to have admitted.
    left: Option<Vec<u64>>,
    outcome: (Vec<u64>, Vec<u64>, Vec<u32>, Vec<u32>),
    refusals: Vec<(f64, usize)>,
    network: Network,
    seed: u64,
    /// When the last client starts, in seconds.
    last_start: f64,
    /// The time in which the others start, in nanoseconds.
    start_spread: u64,
    /// Whether every other client has nothing to send in every other half minute.
    has_idle_clients: bool,
}

impl<'a> Simulation<'a> {
    pub(crate) fn new(clients: Vec<Box<dyn Client + 'a>>, server: Server) -> Self {
        let count = clients.len();
        Self {
            clients,
            server,
            events: BinaryHeap::new(),
            pending: std::collections::HashMap::new(),
            sequence: 0,
            requests: 0,
            wakeups: vec![0; count],
            left: None,
            outcome: (vec![0; count], vec![0; count], Vec::new(), Vec::new()),
            refusals: Vec::new(),
            network: NETWORK,
            seed: 1,
            last_start: 0.0,
            // Processes do not start in the same microsecond.
            start_spread: 100_000_000,
            has_idle_clients: false,
        }
    }

    /// Gives each client so many requests; the run ends when all are admitted.
    pub(crate) fn with_work(mut self, each: u64) -> Self {
        self.left = Some(vec![each; self.clients.len()]);
        self
    }

    /// The last client starts this much later.
    pub(crate) fn with_last_start(mut self, seconds: f64) -> Self {
        self.last_start = seconds;
        self
    }

    /// Clients start within so many seconds.
    pub(crate) fn with_start_spread(mut self, seconds: f64) -> Self {
        self.start_spread = (seconds * 1e9) as u64;
        self
    }

    pub(crate) fn with_network(mut self, network: Network) -> Self {
        self.network = network;
        self
    }

    /// Every other client has nothing to send in every other half minute.
    pub(crate) fn with_idle_clients(mut self) -> Self {
        self.has_idle_clients = true;
        self
    }

    pub(crate) fn run(mut self, seconds: f64) -> Outcome {
        for client in 0..self.clients.len() {
            let spread = self.start_spread;
            // A random number has 31 bits.
            let mut start = self.random(spread.min(1_000_000_000)) * spread.div_ceil(1_000_000_000);
            if client + 1 == self.clients.len() {
                start += (self.last_start * 1e9) as u64;
            }
            self.schedule(start, Event::Wake(client));
        }
        let mut finished_at = seconds;
        while let Some(Reverse((at, sequence))) = self.events.pop() {
            let now = Timestamp::from_nanos(at);
            if at as f64 / 1e9 > seconds {
                break;
            }
            match self.pending.remove(&sequence) {
                Some(Event::Wake(client)) => self.wake(client, now),
                Some(Event::Arrive(client, request)) => self.arrive(client, request, now),
                Some(Event::Respond(client, request, reply)) => {
                    if let Some(client) = self.clients.get_mut(client) {
                        client.on_reply(request, &reply, now);
                    }
                    self.wake(client, now);
                }
                None => {}
            }
            if self
                .left
                .as_ref()
                .is_some_and(|left| left.iter().all(|left| *left == 0))
            {
                finished_at = at as f64 / 1e9;
                break;
            }
        }
        let (admitted, refused, admitted_bins, arrived_bins) = self.outcome;
        Outcome {
            admitted,
            refused,
            admitted_bins,
            arrived_bins,
            refusals: self.refusals,
            finished_at,
            server: self.server,
        }
    }

    fn wake(&mut self, index: usize, now: Timestamp) {
        if self
            .left
            .as_ref()
            .is_some_and(|left| left.get(index) == Some(&0))
        {
            return;
        }
        let half_minute = now.as_nanos() / 30_000_000_000;
        if self.has_idle_clients && index % 2 == 1 && half_minute % 2 == 1 {
            let end = (half_minute + 1) * 30_000_000_000 + 1;
            self.wakeups[index] = end;
            self.schedule(end, Event::Wake(index));
            return;
        }
        let lateness = self.lateness();
        let Some(client) = self.clients.get_mut(index) else {
            return;
        };
        let mut sent = Vec::new();
        // A client that sends without end would be a bug of the study.
        for _ in 0..10_000 {
            self.requests += 1;
            match client.next(self.requests, now) {
                NextStep::Send => sent.push(self.requests),
                NextStep::WaitUntil(at) => {
                    let at = at.as_nanos().max(now.as_nanos() + 1) + lateness;
                    // One wake-up at a time: an earlier one replaces a later one.
                    let planned = &mut self.wakeups[index];
                    if *planned <= now.as_nanos() || at < *planned {
                        *planned = at;
                        self.schedule(at, Event::Wake(index));
                    }
                    break;
                }
                NextStep::WaitForResponse => break,
            }
        }
        for request in sent {
            let at = now.as_nanos() + self.latency();
            self.schedule(at, Event::Arrive(index, request));
        }
    }

    fn arrive(&mut self, client: usize, request: u64, now: Timestamp) {
        let reply = self.server.decide(now);
        let bin = (now.as_nanos() / (1_000_000_000 / BINS_PER_SECOND as u64)) as usize;
        let (admitted, refused, admitted_bins, arrived_bins) = &mut self.outcome;
        for bins in [&mut *admitted_bins, &mut *arrived_bins] {
            if bins.len() <= bin {
                bins.resize(bin + 1, 0);
            }
        }
        arrived_bins[bin] += 1;
        if reply.status == 200 {
            admitted[client] += 1;
            admitted_bins[bin] += 1;
            if let Some(left) = &mut self.left {
                left[client] = left[client].saturating_sub(1);
            }
        } else {
            refused[client] += 1;
            self.refusals.push((now.as_nanos() as f64 / 1e9, client));
        }
        let at = now.as_nanos() + self.latency();
        self.schedule(at, Event::Respond(client, request, reply));
    }

    fn latency(&mut self) -> u64 {
        self.network.one_way + self.random(self.network.variation)
    }

    /// How late the next timer is.
    fn lateness(&mut self) -> u64 {
        if self.network.lateness == 0 {
            return 0;
        }
        let stall = if self.random(100) == 0 {
            self.random(50_000_000)
        } else {
            0
        };
        self.random(self.network.lateness) + stall
    }

    fn random(&mut self, below: u64) -> u64 {
        self.seed = self
            .seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.seed >> 33) % below
    }

    fn schedule(&mut self, at: u64, event: Event) {
        self.sequence += 1;
        self.pending.insert(self.sequence, event);
        self.events.push(Reverse((at, self.sequence)));
    }

    pub(crate) fn with_seed(mut self, seed: u64) -> Self {
        self.seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        self
    }
}
