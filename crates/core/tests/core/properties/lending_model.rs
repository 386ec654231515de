//! Lending, explored exhaustively (I-01, I-14): one real book, nodes with real slices, every order of events within a bound.
//!
//! Messages are delivered in any order, late, twice or never; nodes crash, come back with nothing, stop for any time, give up
//! waiting; their clocks run fast and slow within the margin. In every state that this can lead to:
//!
//! - everything that was really spent, and whatever could be spent in this instant, at the lender and by all nodes together,
//!   conforms to the quota in every window. A bucket that is charged at each spend, when it happens, says so: its debt and
//!   what could be added to it are never above the capacity;
//! - whatever a node may yet spend is out in the book, so nothing is minted;
//! - no more is out than the bucket holds.
//!
//! The bound: time in halves of an interval, a burst of two, slices that live for one and a half, and what [`Bound`] says.

use tollgate_core::quota_lease::{LeaseReport, LeaseSpec, LeasedBucket, LocalLease, QuotaLeaseId};
use tollgate_core::{Nanos, Rate, Timestamp, TokenBucket};
use tollgate_testkit::model_checker::{Exploration, Model, explore};

const UNIT: u64 = 1_000;
const INTERVAL: u64 = 2 * UNIT;
const BURST: u64 = 2;
const LIFE: u64 = 3 * UNIT;
const MARGIN: u64 = UNIT;

/// How far the exploration goes.
#[derive(Clone, Copy, Debug)]
struct Bound {
    nodes: usize,
    /// Units of time.
    time: u64,
    /// Slices that are asked for, by all nodes together.
    asks: u64,
    /// Messages under way at once.
    under_way: usize,
    /// Messages that arrive twice.
    repeats: u64,
    /// Nodes that lose everything and come back.
    crashes: u64,
    /// Times that the first node's clock gains or loses a unit.
    drifts: u64,
    /// Requests of the first node that others refuse.
    tries: u64,
    /// Requests that the lender decides on by itself.
    direct: u64,
}

/// What all have in common; each looks further in its own direction.
const COMMON: Bound = Bound {
    nodes: 1,
    time: 5,
    asks: 1,
    under_way: 1,
    repeats: 0,
    crashes: 0,
    drifts: 0,
    tries: 0,
    direct: 2,
};
const MESSAGES: Bound = Bound {
    time: 4,
    under_way: 2,
    repeats: 1,
    direct: 1,
    ..COMMON
};
const CRASHES: Bound = Bound {
    time: 4,
    asks: 2,
    crashes: 1,
    ..COMMON
};
const CLOCKS: Bound = Bound {
    drifts: 2,
    ..COMMON
};
const REFUSALS: Bound = Bound { tries: 2, ..COMMON };
const TWO_NODES: Bound = Bound {
    nodes: 2,
    time: 3,
    asks: 2,
    direct: 0,
    ..COMMON
};
const THREE_NODES: Bound = Bound {
    nodes: 3,
    time: 1,
    asks: 3,
    direct: 0,
    ..COMMON
};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mistake {
    None,
    /// The node counts a slice's life from the answer.
    CountsFromTheAnswer,
    /// The node takes no margin off a slice's life.
    ForgetsTheMargin,
    /// The node spends from a slice whose time is over.
    SpendsTheDead,
    /// Each answer makes a slice.
    OneIdManySlices,
    /// The node takes no margin off the time since it spent.
    BackdatesReports,
    /// The node takes back a unit that was told, if another was spent since.
    TakesBackWhatItTold,
    /// The lender adds up what reports say.
    ReportsAddUp,
    /// The lender takes back all of a slice that is given back.
    ReturnForgives,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Message {
    Ask {
        node: usize,
        id: u128,
        most: u64,
    },
    Grant {
        node: usize,
        id: u128,
        amount: u64,
    },
    Tell {
        id: u128,
        spent: u64,
        ago: u64,
        is_last: bool,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
struct Node {
    /// Units by which its clock is ahead.
    ahead: u64,
    /// What it waits for: the id, and when it asked.
    asked: Option<(u128, Timestamp)>,
    slices: Vec<LocalLease>,
    /// A unit was taken from its slice for a request that others have yet to admit, and so much was told before.
    tries: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    now: u64,
    book: LeasedBucket,
    nodes: Vec<Node>,
    network: Vec<Message>,
    asks: u64,
    repeats: u64,
    crashes: u64,
    drifts: u64,
    tries: u64,
    direct: u64,
    /// A bucket that is charged whenever something is really spent.
    judge: u64,
}

#[derive(Clone, Copy, Debug)]
enum Action {
    Tick,
    /// Time passes, and this node's clock stands still.
    TickWithout(usize),
    /// This node's clock gains a unit.
    RunsFast(usize),
    Ask(usize, u64),
    GiveUp(usize),
    Spend(usize),
    /// Takes a unit for a request that others have yet to admit.
    Try(usize),
    /// They refused it, so it was never spent.
    Refused(usize),
    Tell(usize),
    Return(usize),
    Crash(usize),
    DecideAtTheLender,
    Deliver(usize),
    DeliverTwice(usize),
    Lose(usize),
}

struct Lending {
    bound: Bound,
    mistake: Mistake,
    quota: TokenBucket,
}

impl Lending {
    fn new(bound: Bound, mistake: Mistake) -> Self {
        let rate = Rate::new(1, Nanos::from_nanos(INTERVAL));
        let quota = TokenBucket::builder(rate).burst(BURST).build().unwrap();
        Self {
            bound,
            mistake,
            quota,
        }
    }

    fn now(state: &State) -> Timestamp {
        // Far enough from 1970 that nothing is clamped there.
        Timestamp::from_nanos((1_000 + state.now) * UNIT)
    }

    fn clock(state: &State, node: usize) -> Timestamp {
        Self::now(state).after(Nanos::from_nanos(state.nodes[node].ahead * UNIT))
    }

    fn clock_to_spend_by(&self, state: &State, node: usize) -> Timestamp {
        match self.mistake {
            Mistake::SpendsTheDead => Timestamp::from_nanos(UNIT),
            _ => Self::clock(state, node),
        }
    }

    fn margin(&self) -> Nanos {
        let is_forgotten = self.mistake == Mistake::ForgetsTheMargin;
        Nanos::from_nanos(if is_forgotten { 0 } else { MARGIN })
    }

    fn spent(state: &mut State) {
        let now = Self::now(state).as_nanos();
        state.judge = state.judge.max(now) + INTERVAL;
    }

    fn send(&self, state: &mut State, message: Message) -> Option<()> {
        if state.network.len() >= self.bound.under_way {
            return None;
        }
        state.network.push(message);
        state.network.sort();
        Some(())
    }

    fn tell(&self, state: &mut State, report: LeaseReport) -> Option<()> {
        let wrongly = match self.mistake {
            Mistake::BackdatesReports => UNIT,
            _ => 0,
        };
        let message = Message::Tell {
            id: report.id.0,
            spent: report.spent,
            ago: report.last_spend_age.as_nanos() + wrongly,
            is_last: report.is_last,
        };
        self.send(state, message)
    }

    fn deliver(&self, state: &mut State, message: Message) {
        let now = Self::now(state);
        match message {
            Message::Ask { node, id, most } => {
                let want = LeaseSpec {
                    id: QuotaLeaseId(id),
                    min_units: 1,
                    max_units: most,
                    duration: Nanos::from_nanos(LIFE),
                };
                let amount = state.book.grant(&self.quota, now, &want);
                // The answer takes the place of the question, so the bound holds.
                state.network.push(Message::Grant { node, id, amount });
                state.network.sort();
            }
            Message::Grant { node, id, amount } => self.receive(state, node, id, amount),
            Message::Tell {
                id,
                mut spent,
                ago,
                is_last,
            } => {
                let loan = state.book.leases().iter().find(|loan| loan.id.0 == id);
                let heard = loan.map_or(0, |loan| loan.spent);
                match self.mistake {
                    Mistake::ReportsAddUp => spent += heard,
                    Mistake::ReturnForgives if is_last => spent = heard,
                    _ => {}
                }
                let report = LeaseReport {
                    id: QuotaLeaseId(id),
                    spent,
                    last_spend_age: Nanos::from_nanos(ago),
                    is_last,
                };
                state.book.apply_report(&self.quota, now, &report);
            }
        }
    }

    fn receive(&self, state: &mut State, node: usize, id: u128, amount: u64) {
        let answered = Self::clock(state, node);
        let margin = self.margin();
        let node = &mut state.nodes[node];
        let asked_at = match node.asked {
            Some((waiting, asked_at)) if waiting == id => asked_at,
            _ if self.mistake == Mistake::OneIdManySlices => answered,
            // It has given up on it, or has it already.
            _ => return,
        };
        node.asked = None;
        let from = match self.mistake {
            Mistake::CountsFromTheAnswer => answered,
            _ => asked_at,
        };
        if amount > 0 {
            let life = Nanos::from_nanos(LIFE);
            node.slices.push(LocalLease::new(
                QuotaLeaseId(id),
                amount,
                from,
                life,
                margin,
            ));
        }
    }

    fn act(&self, state: &mut State, action: Action) -> Option<()> {
        match action {
            Action::Tick => state.now += 1,
            Action::TickWithout(node) => {
                state.now += 1;
                state.drifts += 1;
                state.nodes[node].ahead = state.nodes[node].ahead.checked_sub(1)?;
            }
            Action::RunsFast(node) => {
                state.drifts += 1;
                let ahead = &mut state.nodes[node].ahead;
                *ahead = Some(*ahead + 1).filter(|ahead| ahead * UNIT <= MARGIN)?;
            }
            Action::Crash(node) => {
                state.crashes += 1;
                let ahead = state.nodes[node].ahead;
                state.nodes[node] = Node {
                    ahead,
                    ..Node::default()
                };
            }
            Action::DecideAtTheLender => {
                state.direct += 1;
                let now = Self::now(state);
                let outcome = state.book.decide(&self.quota, now, 1);
                outcome.is_admitted().then(|| Self::spent(state))?;
            }
            Action::Deliver(index) => {
                let message = state.network.remove(index);
                self.deliver(state, message);
            }
            Action::Lose(index) => {
                state.network.remove(index);
            }
            Action::DeliverTwice(index) => {
                state.repeats += 1;
                let message = state.network[index];
                self.deliver(state, message);
            }
            _ => self.act_on_slices(state, action)?,
        }
        Some(())
    }

    /// What a node does about slices.
    fn act_on_slices(&self, state: &mut State, action: Action) -> Option<()> {
        match action {
            Action::Ask(node, most) => {
                let clock = Self::clock(state, node);
                state.asks += 1;
                let id = u128::from(state.asks);
                state.nodes[node].asked = Some((id, clock));
                self.send(state, Message::Ask { node, id, most })?;
            }
            Action::GiveUp(node) => {
                let (id, clock) = state.nodes[node].asked.take()?;
                let zero = Nanos::ZERO;
                let mut nothing = LocalLease::new(QuotaLeaseId(id), 0, clock, zero, zero);
                self.tell(state, nothing.report(clock, true))?;
            }
            Action::Spend(node) => {
                let clock = self.clock_to_spend_by(state, node);
                let node = &mut state.nodes[node];
                spend(&mut node.slices, clock)?;
                Self::spent(state);
            }
            Action::Try(node) => {
                state.tries += 1;
                let clock = self.clock_to_spend_by(state, node);
                let node = &mut state.nodes[node];
                let told = node.slices.first()?.reported();
                if node.tries.replace(told).is_some() || node.slices.len() != 1 {
                    return None;
                }
                spend(&mut node.slices, clock)?;
            }
            Action::Refused(node) => {
                let node = &mut state.nodes[node];
                let told = node.tries.take()?;
                let slice = node.slices.first_mut()?;
                let told = match self.mistake {
                    Mistake::TakesBackWhatItTold => slice.reported(),
                    _ => told,
                };
                slice.refund(1, told);
            }
            Action::Tell(node) => {
                let clock = Self::clock(state, node);
                let slice = state.nodes[node].slices.first_mut()?;
                let report = slice.report(clock, false);
                self.tell(state, report)?;
            }
            Action::Return(node) => {
                let clock = Self::clock(state, node);
                let mut slice = state.nodes[node].slices.pop()?;
                state.nodes[node].tries = None;
                self.tell(state, slice.report(clock, true))?;
            }
            _ => return None,
        }
        Some(())
    }
}

fn spend(slices: &mut [LocalLease], clock: Timestamp) -> Option<()> {
    let is_spent = slices.iter_mut().any(|slice| slice.spend(clock, 1));
    is_spent.then_some(())
}

impl Model for Lending {
    type State = State;
    type Action = Action;

    fn initial(&self) -> State {
        State {
            now: 0,
            book: LeasedBucket::default(),
            nodes: vec![Node::default(); self.bound.nodes],
            network: Vec::new(),
            asks: 0,
            repeats: 0,
            crashes: 0,
            drifts: 0,
            tries: 0,
            direct: 0,
            judge: 0,
        }
    }

    fn actions(&self, state: &State) -> Vec<Action> {
        let bound = &self.bound;
        let mut actions = Vec::new();
        if state.direct < bound.direct {
            actions.push(Action::DecideAtTheLender);
        }
        let is_time_left = state.now < bound.time;
        if is_time_left {
            actions.push(Action::Tick);
        }
        for (index, node) in state.nodes.iter().enumerate() {
            let could_ask = node.asked.is_none() && node.slices.is_empty();
            if could_ask && state.asks < bound.asks {
                actions.extend([Action::Ask(index, 1), Action::Ask(index, BURST)]);
            }
            if node.asked.is_some() {
                actions.push(Action::GiveUp(index));
            }
            let is_first = index == 0;
            if is_first && is_time_left && state.drifts < bound.drifts {
                actions.extend([Action::RunsFast(index), Action::TickWithout(index)]);
            }
            if node.slices.is_empty() {
                continue;
            }
            actions.extend([
                Action::Spend(index),
                Action::Tell(index),
                Action::Return(index),
            ]);
            if is_first && state.tries < bound.tries {
                actions.push(Action::Try(index));
            }
            if node.tries.is_some() {
                actions.push(Action::Refused(index));
            }
            if state.crashes < bound.crashes {
                actions.push(Action::Crash(index));
            }
        }
        for index in 0..state.network.len() {
            actions.extend([Action::Deliver(index), Action::Lose(index)]);
            if state.repeats < bound.repeats {
                actions.push(Action::DeliverTwice(index));
            }
        }
        actions
    }

    fn next(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        self.act(&mut next, action)?;
        // A debt that is paid is none, so states that differ in nothing else are one.
        if next.judge <= Self::now(&next).as_nanos() {
            next.judge = 0;
        }
        Some(next)
    }

    fn broken(&self, state: &State) -> Option<String> {
        let now = Self::now(state);
        let debt = state.judge.saturating_sub(now.as_nanos());
        let alive = state.nodes.iter().enumerate().flat_map(|(index, node)| {
            let clock = self.clock_to_spend_by(state, index);
            node.slices
                .iter()
                .filter(move |slice| slice.is_active(clock))
        });
        let there = state.book.status(&self.quota, now).remaining;
        let there = alive.map(LocalLease::remaining).sum::<u64>() + there;
        if debt + there * INTERVAL > BURST * INTERVAL {
            return Some(format!("{there} may be spent on a debt of {debt}"));
        }
        let out: u64 = state
            .book
            .leases()
            .iter()
            .map(|loan| loan.blocks - loan.spent)
            .sum();
        if out > BURST {
            return Some(format!("{out} are out"));
        }
        for (index, node) in state.nodes.iter().enumerate() {
            let clock = Self::clock(state, index);
            for slice in node.slices.iter().filter(|slice| slice.is_active(clock)) {
                let mut loans = state.book.leases().iter();
                let loan = loans.find(|loan| loan.id == slice.id() && loan.expires > now);
                let out = loan.map_or(0, |loan| loan.blocks - loan.spent);
                if slice.remaining() > out {
                    return Some(format!("node {index} may spend more than is out: {out}"));
                }
            }
        }
        None
    }
}

/// Few enough for every run of the tests.
const MOST: usize = 400_000;

fn holds(bound: Bound) {
    let explored = explore(&Lending::new(bound, Mistake::None), MOST);
    println!("{bound:?}: {explored:?}");
    assert!(
        matches!(explored, Exploration::Holds { .. }),
        "{explored:?}"
    );
}

#[test]
fn i01_i14_messages_that_are_late_lost_repeated_or_out_of_order_mint_nothing() {
    holds(MESSAGES);
}

#[test]
fn i01_i14_nodes_that_lose_everything_mint_nothing() {
    holds(CRASHES);
}

#[test]
fn i01_i14_clocks_that_drift_within_the_margin_mint_nothing() {
    holds(CLOCKS);
}

#[test]
fn i01_i14_requests_that_others_refuse_mint_nothing() {
    holds(REFUSALS);
}

#[test]
fn i01_i14_several_nodes_mint_nothing() {
    holds(TWO_NODES);
    holds(THREE_NODES);
}

#[test]
fn control_every_mistake_is_found_with_its_story() {
    for (mistake, bound) in [
        (Mistake::CountsFromTheAnswer, MESSAGES),
        (Mistake::ForgetsTheMargin, CLOCKS),
        (Mistake::SpendsTheDead, CRASHES),
        (Mistake::OneIdManySlices, MESSAGES),
        (Mistake::BackdatesReports, MESSAGES),
        (Mistake::TakesBackWhatItTold, REFUSALS),
        (Mistake::ReportsAddUp, MESSAGES),
        (Mistake::ReturnForgives, MESSAGES),
    ] {
        let explored = explore(&Lending::new(bound, mistake), MOST);
        println!("{mistake:?}: {explored:?}");
        let is_found = matches!(explored, Exploration::Broken { .. });
        assert!(is_found, "{mistake:?} was not found: {explored:?}");
    }
}
