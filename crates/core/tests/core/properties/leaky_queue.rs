//! The leaky queue against a list of the requests in it: every wait is kept, and beyond the delay allowance releases are at least one
//! interval apart, whichever requests are cancelled.
//!
//! Precisely, for requests that are not cancelled: the units released from one promised instant to before another are at most the delay
//! allowance and one unit for each interval between the two.

use proptest::prelude::*;
use tollgate_core::{LeakyBucket, Nanos, Outcome, Rate, Receipt};
use tollgate_testkit::oracle::Fifo;

use super::harness::{CheckResult, assert_caught, assert_holds, ensure};
use super::subject::{at, interval};

#[derive(Clone, Copy, Debug)]
enum Move {
    Arrive(u64),
    /// The last request leaves the queue.
    CancelLast,
    /// A request with others behind it leaves the queue.
    CancelOne(usize),
}

type Moves = Vec<(u64, Move)>;

/// Moves with the time since the previous one, in hundredths of an interval.
fn moves(cancels_in_the_middle: bool) -> impl Strategy<Value = Moves> {
    let one = if cancels_in_the_middle { 3 } else { 0 };
    let what = prop_oneof![
        6 => (1_u64..4).prop_map(Move::Arrive),
        2 => Just(Move::CancelLast),
        one => any::<usize>().prop_map(Move::CancelOne),
    ];
    let time = prop_oneof![3 => Just(0), 3 => 0_u64..150, 1 => Just(100), 1 => 0_u64..900];
    prop::collection::vec((time, what), 1..50)
}

/// A queue under test.
trait Queue {
    fn arrive(&mut self, now: u64, cost: u64) -> Option<(u64, Receipt)>;
    fn cancel(&mut self, now: u64, receipt: &Receipt);
}

#[derive(Clone, Copy, Debug)]
struct QueueParameters {
    interval: u64,
    burst: u64,
    delay: u64,
}

fn parameters() -> impl Strategy<Value = QueueParameters> {
    (interval(), 0_u64..12, 0_u64..12).prop_map(|(interval, burst, delay)| QueueParameters {
        interval,
        burst,
        delay: delay.min(burst),
    })
}

struct RealQueue(LeakyBucket, u64);

impl RealQueue {
    fn new(parameters: QueueParameters) -> Self {
        let rate = Rate::new(1, Nanos::from_nanos(parameters.interval));
        let builder = LeakyBucket::queue(rate).burst(parameters.burst);
        Self(builder.delay(parameters.delay).build().unwrap(), 0)
    }
}

impl Queue for RealQueue {
    fn arrive(&mut self, now: u64, cost: u64) -> Option<(u64, Receipt)> {
        let transition = self.0.decide(self.1, at(now), cost);
        self.1 = transition.next.unwrap_or(self.1);
        match transition.outcome {
            Outcome::Allow => Some((0, transition.receipt)),
            Outcome::Wait(wait) => Some((wait.as_nanos(), transition.receipt)),
            _ => None,
        }
    }

    fn cancel(&mut self, now: u64, receipt: &Receipt) {
        let refunded = self.0.refund(self.1, at(now), receipt);
        self.1 = refunded.next.unwrap_or(self.1);
    }
}

/// Every wait equals that of the list. If the last request cancels, it is as if it had never arrived.
fn waits_like_the_list(
    mut queue: impl Queue,
    parameters: QueueParameters,
    begin: u64,
    moves: &Moves,
) -> CheckResult {
    let mut list = Fifo::new(parameters.interval, parameters.burst, parameters.delay);
    let mut arrived: Vec<Receipt> = Vec::new();
    let mut now = begin;
    for (time, what) in moves {
        now += time * parameters.interval / 100;
        match what {
            Move::Arrive(cost) => {
                let expected = list.arrive(now, *cost);
                let reply = queue.arrive(now, *cost);
                let wait = reply.map(|reply| i128::from(reply.0));
                ensure!(wait == expected, "waits {wait:?}, the list {expected:?}");
                arrived.extend(reply.map(|reply| reply.1));
            }
            Move::CancelLast => {
                if let Some(receipt) = arrived.pop() {
                    list.last_leaves();
                    queue.cancel(now, &receipt);
                }
            }
            Move::CancelOne(which) => {
                if arrived.len() > 1 {
                    let receipt = arrived[which % (arrived.len() - 1)];
                    queue.cancel(now, &receipt);
                }
            }
        }
    }
    Ok(())
}

/// No two requests leave together beyond the delay allowance, whichever requests are cancelled.
fn releases_are_apart(
    mut queue: impl Queue,
    parameters: QueueParameters,
    begin: u64,
    moves: &Moves,
) -> CheckResult {
    // The release time, cost and receipt of each request; a cancelled one has no receipt.
    let mut arrived: Vec<(u64, u64, Option<Receipt>)> = Vec::new();
    let mut now = begin;
    for (time, what) in moves {
        now += time * parameters.interval / 100;
        let which = match what {
            Move::Arrive(cost) => {
                let reply = queue.arrive(now, *cost);
                arrived.extend(reply.map(|(wait, receipt)| (now + wait, *cost, Some(receipt))));
                continue;
            }
            Move::CancelLast => arrived.len().saturating_sub(1),
            Move::CancelOne(which) => which % arrived.len().max(1),
        };
        // Only a request that still waits can be cancelled.
        if let Some(one) = arrived.get_mut(which).filter(|one| one.0 > now)
            && let Some(receipt) = one.2.take()
        {
            queue.cancel(now, &receipt);
        }
    }
    arrived.retain(|one| one.2.is_some());
    let interval = i128::from(parameters.interval);
    for (i, first) in arrived.iter().enumerate() {
        let mut released = 0;
        for last in arrived.iter().skip(i) {
            let apart = i128::from(last.0) - i128::from(first.0);
            let most = apart + i128::from(parameters.delay) * interval;
            ensure!(
                released * interval <= most,
                "{released} released in {apart} ns"
            );
            released += i128::from(last.1);
        }
    }
    Ok(())
}

const BEGIN: u64 = 1_700_000_000_000_000_000;

#[test]
fn a_queue_waits_like_the_list_of_its_requests() {
    assert_holds(&(parameters(), moves(true)), |(parameters, moves)| {
        waits_like_the_list(RealQueue::new(parameters), parameters, BEGIN, &moves)
    });
}

#[test]
fn i01_a_cancelled_wait_never_lets_two_leave_together() {
    assert_holds(&(parameters(), moves(true)), |(parameters, moves)| {
        releases_are_apart(RealQueue::new(parameters), parameters, BEGIN, &moves)
    });
}

/// Refunds a cancelled place although other requests stand behind it.
struct RefundsTheMiddle(RealQueue);

impl Queue for RefundsTheMiddle {
    fn arrive(&mut self, now: u64, cost: u64) -> Option<(u64, Receipt)> {
        self.0.arrive(now, cost)
    }

    fn cancel(&mut self, now: u64, receipt: &Receipt) {
        let price = receipt.cost * self.0.0.interval().as_nanos();
        self.0.1 = self.0.1.saturating_sub(price).max(now);
    }
}

/// NGINX's arithmetic: thousandths of a request and milliseconds, both truncated at every request.
struct TruncatingQueue {
    parameters: QueueParameters,
    excess: i128,
    last: u64,
}

impl Queue for TruncatingQueue {
    fn arrive(&mut self, now: u64, cost: u64) -> Option<(u64, Receipt)> {
        let rate = 1_000_000_000_000 / i128::from(self.parameters.interval);
        let millis = i128::from((now - self.last) / 1_000_000);
        let ahead = (self.excess - rate * millis / 1_000).max(0);
        let excess = ahead + 1_000 * i128::from(cost);
        if excess > 1_000 * (i128::from(self.parameters.burst) + 1) {
            return None;
        }
        (self.excess, self.last) = (excess, now);
        let waits = (ahead - 1_000 * i128::from(self.parameters.delay)).max(0);
        let wait = waits * 1_000 / rate.max(1) * 1_000_000;
        Some((u64::try_from(wait).unwrap(), Receipt::default()))
    }

    fn cancel(&mut self, _now: u64, _receipt: &Receipt) {}
}

#[test]
fn control_a_refund_in_the_middle_of_the_queue_is_caught_by_both_checkers() {
    assert_caught(&(parameters(), moves(true)), |(parameters, moves)| {
        waits_like_the_list(
            RefundsTheMiddle(RealQueue::new(parameters)),
            parameters,
            BEGIN,
            &moves,
        )
    });
    assert_caught(&(parameters(), moves(true)), |(parameters, moves)| {
        releases_are_apart(
            RefundsTheMiddle(RealQueue::new(parameters)),
            parameters,
            BEGIN,
            &moves,
        )
    });
}

#[test]
fn control_a_queue_truncated_at_every_request_is_caught() {
    let slow =
        (1_000_000_u64..5_000_000_000, 0_u64..12).prop_map(|(interval, burst)| QueueParameters {
            interval,
            burst,
            delay: 0,
        });
    assert_caught(&(slow, moves(false)), |(parameters, moves)| {
        let queue = TruncatingQueue {
            parameters,
            excess: 0,
            last: BEGIN,
        };
        waits_like_the_list(queue, parameters, BEGIN, &moves)
    });
}
