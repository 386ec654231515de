//! The clients that are compared: ours, and three that people write.
//!
//! Must not know: the server's quota, unless a person would have told the client.

use std::collections::HashMap;

use tollgate_client::{
    Acquired, Grant, Nanos, PaceRequest, Pacer, PacerSettings, ResponseReader, Timestamp, WaiterId,
    WaiterState,
};

use crate::server::Reply;

/// What a client does next.
pub(crate) enum NextStep {
    Send,
    WaitUntil(Timestamp),
    WaitForResponse,
}

/// A client with as many requests as it can send.
pub(crate) trait Client {
    fn next(&mut self, request: u64, now: Timestamp) -> NextStep;
    fn on_reply(&mut self, request: u64, reply: &Reply, now: Timestamp);
}

/// The client of this crate.
pub(crate) struct Paced {
    pacer: Pacer,
    waiter: Option<WaiterId>,
    in_flight: HashMap<u64, Grant>,
}

impl Paced {
    pub(crate) fn new(settings: PacerSettings, seed: u64) -> Self {
        Self {
            pacer: Pacer::new(settings, seed),
            waiter: None,
            in_flight: HashMap::new(),
        }
    }
}

impl Client for Paced {
    fn next(&mut self, request: u64, now: Timestamp) -> NextStep {
        let waiter = match self.waiter {
            Some(waiter) => waiter,
            None => match self.pacer.acquire(&PaceRequest::new("server"), now) {
                Ok(Acquired::Now(grant)) => {
                    self.in_flight.insert(request, grant);
                    return NextStep::Send;
                }
                Ok(Acquired::Queued(waiter)) => *self.waiter.insert(waiter),
                Err(_) => return NextStep::WaitUntil(now.after(Nanos::from_secs(1))),
            },
        };
        self.pacer.grant_due(now, |_| ());
        match self.pacer.poll(waiter) {
            WaiterState::Granted(grant) => {
                self.waiter = None;
                self.in_flight.insert(request, grant);
                NextStep::Send
            }
            WaiterState::Waiting => match self.pacer.next_wakeup(now) {
                Some(at) => NextStep::WaitUntil(at),
                None => NextStep::WaitForResponse,
            },
            WaiterState::Failed(_) => {
                self.waiter = None;
                NextStep::WaitUntil(now.after(Nanos::from_secs(1)))
            }
        }
    }

    fn on_reply(&mut self, request: u64, reply: &Reply, now: Timestamp) {
        let mut reader = ResponseReader::new(now);
        for (name, value) in reply.fields.iter() {
            reader.field(name, value);
        }
        if let Some(grant) = self.in_flight.remove(&request) {
            self.pacer
                .on_response(grant, reply.status, &reader.finish(), now);
        }
    }
}

/// Some workers that send one request after another, and wait a fixed time after a refusal.
pub(crate) struct Workers {
    ready: u32,
    backoff: Nanos,
    waiting: Vec<Timestamp>,
}

impl Workers {
    pub(crate) fn new(workers: u32, backoff: Nanos) -> Self {
        Self {
            ready: workers,
            backoff,
            waiting: Vec::new(),
        }
    }
}

impl Client for Workers {
    fn next(&mut self, _request: u64, now: Timestamp) -> NextStep {
        let before = self.waiting.len();
        self.waiting.retain(|until| *until > now);
        self.ready += (before - self.waiting.len()) as u32;
        if self.ready > 0 {
            self.ready -= 1;
            return NextStep::Send;
        }
        let next = self.waiting.iter().min();
        next.map_or(NextStep::WaitForResponse, |at| NextStep::WaitUntil(*at))
    }

    fn on_reply(&mut self, _request: u64, reply: &Reply, now: Timestamp) {
        if reply.status == 200 {
            self.ready += 1;
        } else {
            self.waiting.push(now.after(self.backoff));
        }
    }
}

/// A token bucket with a rate that a person chose, who knows the quota and the number of clients.
pub(crate) struct FixedRate {
    interval: Nanos,
    next_at: Timestamp,
}

impl FixedRate {
    pub(crate) fn new(rate: f64) -> Self {
        Self {
            interval: Nanos::from_nanos((1e9 / rate) as u64),
            next_at: Timestamp::EPOCH,
        }
    }
}

impl Client for FixedRate {
    fn next(&mut self, _request: u64, now: Timestamp) -> NextStep {
        if now < self.next_at {
            return NextStep::WaitUntil(self.next_at);
        }
        self.next_at = self.next_at.max(now).after(self.interval);
        NextStep::Send
    }

    fn on_reply(&mut self, _request: u64, _reply: &Reply, _now: Timestamp) {}
}
