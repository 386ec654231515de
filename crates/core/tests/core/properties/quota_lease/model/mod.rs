//! Leases, explored exhaustively (I-01, I-14): one real leased bucket, nodes with real leases, every order of events within a bound.
//!
//! Messages are delivered in any order, late, twice or never. Nodes crash and restart without state, pause for any time, and stop waiting
//! for a grant. Their clocks run fast and slow within the margin. In every reachable state:
//!
//! - Everything that was really spent, and everything that the broker and all nodes could spend in this instant, conforms to the quota in
//!   every window. A reference bucket is charged at each real spend: its debt and what could be added to it never exceed the capacity.
//! - Every unit that a node may still spend is outstanding at the broker, so nothing is minted.
//! - No more blocks are outstanding than the bucket holds.
//!
//! The bound: time in halves of an interval, a burst of two, leases of one and a half intervals, and the numbers in [`Bound`].

mod checks;
mod transitions;

use tollgate_core::quota_lease::{LeasedBucket, LocalLease};
use tollgate_core::{Timestamp, TokenBucket};
use tollgate_testkit::model_checker::{Exploration, explore};

const UNIT: u64 = 1_000;
const INTERVAL: u64 = 2 * UNIT;
const BURST: u64 = 2;
const DURATION: u64 = 3 * UNIT;
const MARGIN: u64 = UNIT;

/// How far the exploration goes.
#[derive(Clone, Copy, Debug)]
struct Bound {
    nodes: usize,
    /// Units of time.
    time: u64,
    /// Leases requested, by all nodes together.
    requests: u64,
    /// Messages in flight at once.
    in_flight: usize,
    /// Messages that arrive twice.
    repeats: u64,
    /// Crashes of a node, which restarts without state.
    crashes: u64,
    /// Steps by which the first node's clock gains or loses a unit.
    drifts: u64,
    /// Requests of the first node that another limit denies.
    trials: u64,
    /// Requests that the broker decides directly.
    direct: u64,
}

/// The common bound. Each test extends it in one direction.
const COMMON: Bound = Bound {
    nodes: 1,
    time: 5,
    requests: 1,
    in_flight: 1,
    repeats: 0,
    crashes: 0,
    drifts: 0,
    trials: 0,
    direct: 2,
};
const MESSAGES: Bound = Bound {
    time: 4,
    in_flight: 2,
    repeats: 1,
    direct: 1,
    ..COMMON
};
const CRASHES: Bound = Bound {
    time: 4,
    requests: 2,
    crashes: 1,
    ..COMMON
};
const CLOCKS: Bound = Bound {
    drifts: 2,
    ..COMMON
};
const DENIALS: Bound = Bound {
    trials: 2,
    ..COMMON
};
const TWO_NODES: Bound = Bound {
    nodes: 2,
    time: 3,
    requests: 2,
    direct: 0,
    ..COMMON
};
const THREE_NODES: Bound = Bound {
    nodes: 3,
    time: 1,
    requests: 3,
    direct: 0,
    ..COMMON
};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mistake {
    None,
    /// The node counts the duration of a lease from the reply.
    CountsFromTheReply,
    /// The node subtracts no margin from the duration of a lease.
    ForgetsTheMargin,
    /// The node spends from an expired lease.
    SpendsExpired,
    /// Each reply makes a lease.
    OneIdManyLeases,
    /// The node subtracts no margin from the time since its last spend.
    BackdatesReports,
    /// The node refunds a reported unit, if another was spent since.
    RefundsReportedUnits,
    /// The broker adds up the units of reports.
    ReportsAddUp,
    /// The broker takes back all units of a returned lease.
    ReturnForgives,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Message {
    Request {
        node: usize,
        id: u128,
        units: u64,
    },
    Grant {
        node: usize,
        id: u128,
        amount: u64,
    },
    Report {
        id: u128,
        spent: u64,
        age: u64,
        is_last: bool,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
struct Node {
    /// Units by which its clock is ahead.
    ahead: u64,
    /// The id of the request whose grant it waits for, and when it was sent.
    pending: Option<(u128, Timestamp)>,
    leases: Vec<LocalLease>,
    /// Set while a unit is spent for a request that other limits have yet to admit: the units reported before.
    trial: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    now: u64,
    bucket: LeasedBucket,
    nodes: Vec<Node>,
    network: Vec<Message>,
    requests: u64,
    repeats: u64,
    crashes: u64,
    drifts: u64,
    trials: u64,
    direct: u64,
    /// The state of a reference bucket that is charged at every real spend.
    reference_tat: u64,
}

#[derive(Clone, Copy, Debug)]
enum Action {
    Tick,
    /// Time passes, and this node's clock stands still.
    TickExceptNode(usize),
    /// This node's clock gains a unit.
    GainTick(usize),
    Request(usize, u64),
    GiveUp(usize),
    Spend(usize),
    /// Spends a unit for a request that other limits have yet to admit.
    Trial(usize),
    /// Another limit denied the request, so its unit is refunded.
    DenyTrial(usize),
    Report(usize),
    Return(usize),
    Crash(usize),
    DecideAtTheBroker,
    Deliver(usize),
    DeliverTwice(usize),
    Lose(usize),
}

struct LeaseModel {
    bound: Bound,
    mistake: Mistake,
    quota: TokenBucket,
}

/// Few enough states for every run of the tests.
const MAX_STATES: usize = 400_000;

fn assert_holds(bound: Bound) {
    let explored = explore(&LeaseModel::new(bound, Mistake::None), MAX_STATES);
    println!("{bound:?}: {explored:?}");
    assert!(
        matches!(explored, Exploration::Holds { .. }),
        "{explored:?}"
    );
}

#[test]
fn i01_i14_messages_that_are_late_lost_repeated_or_out_of_order_mint_nothing() {
    assert_holds(MESSAGES);
}

#[test]
fn i01_i14_nodes_that_crash_mint_nothing() {
    assert_holds(CRASHES);
}

#[test]
fn i01_i14_clocks_that_drift_within_the_margin_mint_nothing() {
    assert_holds(CLOCKS);
}

#[test]
fn i01_i14_requests_that_other_limits_deny_mint_nothing() {
    assert_holds(DENIALS);
}

#[test]
fn i01_i14_several_nodes_mint_nothing() {
    assert_holds(TWO_NODES);
    assert_holds(THREE_NODES);
}

#[test]
fn control_every_mistake_is_found_with_its_trace() {
    for (mistake, bound) in [
        (Mistake::CountsFromTheReply, MESSAGES),
        (Mistake::ForgetsTheMargin, CLOCKS),
        (Mistake::SpendsExpired, CRASHES),
        (Mistake::OneIdManyLeases, MESSAGES),
        (Mistake::BackdatesReports, MESSAGES),
        (Mistake::RefundsReportedUnits, DENIALS),
        (Mistake::ReportsAddUp, MESSAGES),
        (Mistake::ReturnForgives, MESSAGES),
    ] {
        let explored = explore(&LeaseModel::new(bound, mistake), MAX_STATES);
        println!("{mistake:?}: {explored:?}");
        let is_found = matches!(explored, Exploration::Broken { .. });
        assert!(is_found, "{mistake:?} was not found: {explored:?}");
    }
}
