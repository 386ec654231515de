//! The state machines of overload control behind one lock, and who is told when a place becomes free.
//!
//! Nothing waits under the lock, and no permit is dropped under it. Must not know: requests, policies' names.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;
use tollgate_core::{Nanos, Timestamp};
use tollgate_overload::{
    Completion, ConcurrencyGate, CreditClient, GateOutcome, PeerUsage, PriorityClass, ReserveLoan,
    ReservedShare, Usage, UtilizationShedder, UtilizationSignals,
};
use tollgate_policy::model::{Mode, ShedMechanism};

use super::credits::TargetCredits;
use super::permit::{OverloadPermit, OverloadWait};
use super::retries::TargetRetries;
use super::shed_counters::ShedCounters;
use super::status::{FleetUsageStatus, OverloadTargetStatus};
use super::{OverloadEntry, OverloadTicket, Shed};

/// How often the utilization is observed.
const OBSERVE_INTERVAL: Nanos = Nanos::from_millis(100);
/// While the reserve is lent and the limit only observed, requests in flight may exceed it by the limit divided by this.
const ABOVE_LIMIT: u64 = 16;
/// A delay of the runtime that counts as saturation.
const SATURATED_DELAY: Nanos = Nanos::from_millis(100);

/// Overload control of one target.
#[derive(Debug, Default)]
pub struct OverloadControl {
    /// `None` before the first request.
    state: Mutex<Option<ControlState>>,
    pub(super) counters: Arc<ShedCounters>,
}

#[derive(Debug)]
pub(super) struct ControlState {
    pub(super) gate: ConcurrencyGate<Waiter>,
    shedder: UtilizationShedder,
    classes: usize,
    observed: Timestamp,
    /// The latest time that was seen, for permits that are dropped.
    pub(super) now: Timestamp,
    /// Requests in flight of the first class, and of all others.
    critical: u32,
    others: u32,
    /// What the peers of a fleet reported last.
    peers: Option<PeerUsage>,
    loan: ReserveLoan,
    retries: TargetRetries,
    pub(super) credits: TargetCredits,
}

#[derive(Debug)]
pub(super) struct Waiter {
    sender: oneshot::Sender<OverloadPermit>,
    class: PriorityClass,
}

/// How busy this process is, besides the requests of one target.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ProcessSignals {
    /// How long a ready task waits for a thread.
    pub(super) runtime_delay: Nanos,
    /// Processor time as a share of what the process may use.
    pub(super) cpu: f64,
}

/// A request that gives its place back.
#[derive(Debug)]
pub(super) struct EndedRequest {
    pub(super) started: Timestamp,
    pub(super) class: PriorityClass,
    pub(super) completion: Completion,
}

impl OverloadControl {
    pub(super) fn new(counters: Arc<ShedCounters>) -> Self {
        Self {
            state: Mutex::default(),
            counters,
        }
    }

    /// Decides whether a request is shed before its limits are asked.
    pub(super) fn check(
        &self,
        now: Timestamp,
        ticket: &OverloadTicket,
        classes: usize,
        signals: ProcessSignals,
    ) -> Result<(), Shed> {
        let (class, overload) = (ticket.class, &ticket.overload);
        let mut guard = self.lock();
        let state = guard.get_or_insert_with(|| ControlState::new(now, classes));
        state.advance(now, classes, signals);
        let has_mode = |mode| mode != Mode::Off;
        let sheds = [
            (
                ShedMechanism::Retries,
                overload.retries,
                has_mode(overload.retries)
                    && state
                        .retries
                        .is_above_budget(ticket.attempt, overload.retry_share),
            ),
            (
                ShedMechanism::Utilization,
                overload.utilization,
                has_mode(overload.utilization) && state.shedder.is_shed(class),
            ),
            (
                ShedMechanism::Reserve,
                overload.reserve,
                has_mode(overload.reserve)
                    && state.needs_reserve(class, overload.reserved_share.hundredths()),
            ),
            (
                ShedMechanism::Concurrency,
                overload.adaptive_concurrency,
                // In shadow mode nobody waits, so the queue is empty; `enter` counts.
                overload.adaptive_concurrency == Mode::Enforce && state.gate.is_full_for(class),
            ),
        ];
        state.credits.set_mode(overload.credits);
        drop(guard);
        for (mechanism, mode, is_shed) in sheds {
            if is_shed && self.counters.record(mechanism, class, mode) {
                let credits = self.refuse_credits(now, overload.credits, ticket.credit_client());
                return Err(Shed { mechanism, credits });
            }
        }
        Ok(())
    }

    /// Takes a place, or a place in the queue.
    pub(super) fn enter(
        control: &Arc<Self>,
        now: Timestamp,
        ticket: &OverloadTicket,
    ) -> OverloadEntry {
        let class = ticket.class;
        let permit = || OverloadPermit::new(Arc::clone(control), now, class);
        let mut expired = Vec::new();
        let mut guard = control.lock();
        let state = guard.get_or_insert_with(|| ControlState::new(now, 1));
        state.now = state.now.max(now);
        let mode = ticket.overload.adaptive_concurrency;
        if mode != Mode::Enforce {
            let is_above = state.gate.start_observed(now);
            state.count_started(class);
            drop(guard);
            if is_above {
                control
                    .counters
                    .record(ShedMechanism::Concurrency, class, mode);
            }
            return OverloadEntry::Started(permit());
        }
        if state.gate.try_start(now, |waiter| expired.push(waiter)) {
            state.count_started(class);
            drop(guard);
            return OverloadEntry::Started(permit());
        }
        let (sender, receiver) = oneshot::channel();
        let waiter = Waiter { sender, class };
        let shed = |waiter| expired.push(waiter);
        let tenant = ticket.tenant.unwrap_or_default();
        let outcome = state.gate.enqueue(now, class, tenant, waiter, shed);
        drop(guard);
        match outcome {
            GateOutcome::Queued => OverloadEntry::Waiting(OverloadWait {
                control: Arc::clone(control),
                class,
                credits: ticket.overload.credits,
                client: ticket.credit_client(),
                receiver,
            }),
            GateOutcome::Started(_) | GateOutcome::Shed(_) => {
                let client = ticket.credit_client();
                OverloadEntry::Shed(control.shed_queued(class, ticket.overload.credits, client))
            }
        }
    }

    /// A request gives its place back. Those who wait for it are told.
    pub(super) fn finish(self: &Arc<Self>, now: Option<Timestamp>, ended: EndedRequest) {
        let mut all_ended = vec![ended];
        // A loop and not a recursion: of very many waiting requests all may be gone.
        while let Some(ended) = all_ended.pop() {
            let (mut started, mut expired) = (Vec::new(), Vec::new());
            let mut guard = self.lock();
            let Some(state) = guard.as_mut() else {
                return;
            };
            let now = now.unwrap_or(state.now).max(state.now);
            state.now = now;
            state.count_ended(ended.class);
            state.gate.finish(now, ended.started, ended.completion);
            while let Some(waiter) = state.gate.next(now, |waiter| expired.push(waiter)) {
                state.count_started(waiter.class);
                started.push(waiter);
            }
            drop(guard);
            for Waiter { sender, class } in started {
                let permit = OverloadPermit::new(Arc::clone(self), now, class);
                if let Err(mut unwanted) = sender.send(permit) {
                    let unwanted = unwanted.take(Completion::Ignored);
                    all_ended.extend(unwanted.map(|(_, ended)| ended));
                }
            }
        }
    }

    /// Counts a request that the queue sheds, and tells its client when to return.
    pub(super) fn shed_queued(
        &self,
        class: PriorityClass,
        credits: Mode,
        client: Option<CreditClient>,
    ) -> Shed {
        let mechanism = ShedMechanism::Concurrency;
        self.counters.record(mechanism, class, Mode::Enforce);
        Shed {
            mechanism,
            credits: self.refuse_credits(Timestamp::EPOCH, credits, client),
        }
    }

    /// What the target can do at a time and does now. `None` before its capacity was found.
    pub(super) fn usage(&self) -> Option<Usage> {
        self.lock().as_ref()?.usage()
    }

    /// Takes what the peers of a fleet reported of this target.
    pub(super) fn set_peers(&self, peers: Option<PeerUsage>) {
        if let Some(state) = self.lock().as_mut() {
            state.peers = peers;
        }
    }

    /// The state, with the names of the classes and of the target. `None` before the first request.
    pub(super) fn status(
        &self,
        now: Timestamp,
        classes: &[Box<str>],
        upstream: &str,
        route: &str,
    ) -> Option<OverloadTargetStatus> {
        let guard = self.lock();
        let state = guard.as_ref()?;
        let occupancy = state.gate.occupancy();
        let percent = |index: usize| {
            let class = PriorityClass::new(index);
            class.map_or(0, |class| percent(state.shedder.share(class)))
        };
        Some(OverloadTargetStatus {
            upstream: upstream.into(),
            route: route.into(),
            limit: occupancy.limit,
            capacity: state.gate.capacity(),
            in_flight: occupancy.in_flight,
            queued: occupancy.queued,
            utilization: state.shedder.utilization(),
            fleet: state.peers_at(now).map(|peers| {
                let own = state.usage();
                let sum = peers.peers.saturating_add(own.unwrap_or_default());
                FleetUsageStatus {
                    nodes: peers.nodes.saturating_add(usize::from(own.is_some())),
                    limit: sum.capacity,
                    critical: sum.critical,
                    others: sum.others,
                }
            }),
            credits: state.credits.status(),
            shed_percent: classes.iter().cloned().zip((0..).map(percent)).collect(),
        })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Option<ControlState>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ControlState {
    fn new(now: Timestamp, classes: usize) -> Self {
        Self {
            gate: ConcurrencyGate::new(now),
            shedder: UtilizationShedder::new(classes),
            classes,
            observed: now,
            now,
            critical: 0,
            others: 0,
            peers: None,
            loan: ReserveLoan::new(now),
            retries: TargetRetries::default(),
            credits: TargetCredits::default(),
        }
    }

    /// Observes the utilization, if it is time.
    fn advance(&mut self, now: Timestamp, classes: usize, process: ProcessSignals) {
        self.now = self.now.max(now);
        if self.classes != classes {
            // A new policy has other classes: what was shed of the old ones says nothing about them.
            (self.classes, self.shedder) = (classes, UtilizationShedder::new(classes));
        }
        if now.since(self.observed) < OBSERVE_INTERVAL {
            return;
        }
        self.observed = now;
        let occupancy = self.gate.occupancy();
        let in_flight = |capacity: u32| f64::from(occupancy.in_flight) / f64::from(capacity.max(1));
        let signals = UtilizationSignals {
            in_flight: self.gate.capacity().map_or(0.0, in_flight),
            queue_delay: share(process.runtime_delay, SATURATED_DELAY),
            cpu: process.cpu,
        };
        self.shedder.observe(now, signals);
    }

    /// Whether the reserve of the first class leaves no room for a request of another class.
    fn needs_reserve(&mut self, class: PriorityClass, hundredths: u16) -> bool {
        let reserve = ReservedShare::from_hundredths_of_percent(hundredths);
        let own = match self.usage() {
            Some(own) if class != PriorityClass::CRITICAL => own,
            // Nobody knows yet how much the share is.
            _ => return false,
        };
        let (all, room) = match self.peers_at(self.now) {
            Some(peers) => (
                peers.peers.saturating_add(own),
                peers.room_for_others(reserve, own),
            ),
            None => (own, reserve.room_for_others(own.capacity, own.critical)),
        };
        own.others >= room
            && !(reserve.is_idle(all.capacity, all.critical) && self.is_reserve_lent(own))
    }

    /// Whether the idle reserve is lent, up to a little above the limit. Otherwise the limit would not be in use, and not be measured.
    fn is_reserve_lent(&mut self, own: Usage) -> bool {
        let in_flight = own.critical.saturating_add(own.others);
        let latency = self.gate.latency().unwrap_or(Nanos::SECOND);
        in_flight <= own.capacity.saturating_add(own.capacity / ABOVE_LIMIT)
            && (!self.gate.is_settled() || self.loan.is_lent(self.now, latency))
    }

    /// `None` before the capacity was found.
    fn usage(&self) -> Option<Usage> {
        Some(Usage {
            capacity: self.gate.capacity()?.into(),
            critical: self.critical.into(),
            others: self.others.into(),
        })
    }

    /// What the peers reported, if it is recent enough to count.
    fn peers_at(&self, now: Timestamp) -> Option<PeerUsage> {
        self.peers.filter(|peers| now < peers.expires)
    }

    const fn count_started(&mut self, class: PriorityClass) {
        let count = self.count_of(class);
        *count = count.saturating_add(1);
    }

    const fn count_ended(&mut self, class: PriorityClass) {
        let count = self.count_of(class);
        *count = count.saturating_sub(1);
    }

    const fn count_of(&mut self, class: PriorityClass) -> &mut u32 {
        match class.is_critical() {
            true => &mut self.critical,
            false => &mut self.others,
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a delay needs no 53 bits")]
fn share(delay: Nanos, of: Nanos) -> f64 {
    delay.as_nanos() as f64 / of.as_nanos().max(1) as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share is between 0 and 1"
)]
fn percent(share: f64) -> u8 {
    (share.clamp(0.0, 1.0) * 100.0).round() as u8
}
