//! The leaky queue against a list of the requests in it: every wait is kept, and beyond the delay allowance releases are at least one
//! interval apart, whichever requests are cancelled.
//!
//! Precisely, for requests that are not cancelled: the units released from one promised instant to before another are at most the delay
//! allowance and one unit for each interval between the two.

use proptest::prelude::*;
use tollgate_core::{LeakyBucket, Nanos, Outcome, Rate, Receipt};
use tollgate_testkit::oracle::Fifo;

use super::harness::{Checked, caught, ensure, holds};
use super::subject::{at, interval};

#[derive(Clone, Copy, Debug)]
enum Move {
    Arrives(u64),
    /// The last request leaves the queue.
    LastCancels,
    /// A request with others behind it leaves the queue.
    OneCancels(usize),
}

type Moves = Vec<(u64, Move)>;

/// Moves with the time since the previous one, in hundredths of an interval.
fn moves(anyone_cancels: bool) -> impl Strategy<Value = Moves> {
    let one = if anyone_cancels { 3 } else { 0 };
    let what = prop_oneof![
        6 => (1_u64..4).prop_map(Move::Arrives),
        2 => Just(Move::LastCancels),
        one => any::<usize>().prop_map(Move::OneCancels),
    ];
    let time = prop_oneof![3 => Just(0), 3 => 0_u64..150, 1 => Just(100), 1 => 0_u64..900];
    prop::collection::vec((time, what), 1..50)
}

/// A queue under test.
trait Queue {
    fn arrives(&mut self, now: u64, cost: u64) -> Option<(u64, Receipt)>;
    fn cancels(&mut self, now: u64, receipt: &Receipt);
}

#[derive(Clone, Copy, Debug)]
struct Terms {
    interval: u64,
    burst: u64,
    delay: u64,
}

fn terms() -> impl Strategy<Value = Terms> {
    (interval(), 0_u64..12, 0_u64..12).prop_map(|(interval, burst, delay)| Terms {
        interval,
        burst,
        delay: delay.min(burst),
    })
}

struct Real(LeakyBucket, u64);

impl Real {
    fn new(terms: Terms) -> Self {
        let rate = Rate::new(1, Nanos::from_nanos(terms.interval));
        let builder = LeakyBucket::queue(rate).burst(terms.burst);
        Self(builder.delay(terms.delay).build().unwrap(), 0)
    }
}

impl Queue for Real {
    fn arrives(&mut self, now: u64, cost: u64) -> Option<(u64, Receipt)> {
        let transition = self.0.decide(self.1, at(now), cost);
        self.1 = transition.next.unwrap_or(self.1);
        match transition.outcome {
            Outcome::Allow => Some((0, transition.receipt)),
            Outcome::Wait(wait) => Some((wait.as_nanos(), transition.receipt)),
            _ => None,
        }
    }

    fn cancels(&mut self, now: u64, receipt: &Receipt) {
        let refunded = self.0.refund(self.1, at(now), receipt);
        self.1 = refunded.next.unwrap_or(self.1);
    }
}

/// Every wait equals that of the list. If the last request cancels, it is as if it had never arrived.
fn waits_like_the_list(mut queue: impl Queue, terms: Terms, begin: u64, moves: &Moves) -> Checked {
    let mut list = Fifo::new(terms.interval, terms.burst, terms.delay);
    let mut came: Vec<Receipt> = Vec::new();
    let mut now = begin;
    for (time, what) in moves {
        now += time * terms.interval / 100;
        match what {
            Move::Arrives(cost) => {
                let expected = list.arrive(now, *cost);
                let answer = queue.arrives(now, *cost);
                let wait = answer.map(|answer| i128::from(answer.0));
                ensure!(
                    wait == expected,
                    "promised {wait:?}, the list says {expected:?}"
                );
                came.extend(answer.map(|answer| answer.1));
            }
            Move::LastCancels => {
                if let Some(receipt) = came.pop() {
                    list.last_leaves();
                    queue.cancels(now, &receipt);
                }
            }
            Move::OneCancels(which) => {
                if came.len() > 1 {
                    let receipt = came[which % (came.len() - 1)];
                    queue.cancels(now, &receipt);
                }
            }
        }
    }
    Ok(())
}

/// No two requests leave together beyond the delay allowance, whichever requests are cancelled.
fn releases_are_apart(mut queue: impl Queue, terms: Terms, begin: u64, moves: &Moves) -> Checked {
    // The release time, cost and receipt of each request; a cancelled one has no receipt.
    let mut came: Vec<(u64, u64, Option<Receipt>)> = Vec::new();
    let mut now = begin;
    for (time, what) in moves {
        now += time * terms.interval / 100;
        let which = match what {
            Move::Arrives(cost) => {
                let answer = queue.arrives(now, *cost);
                came.extend(answer.map(|(wait, receipt)| (now + wait, *cost, Some(receipt))));
                continue;
            }
            Move::LastCancels => came.len().saturating_sub(1),
            Move::OneCancels(which) => which % came.len().max(1),
        };
        // Only a request that still waits can be cancelled.
        if let Some(one) = came.get_mut(which).filter(|one| one.0 > now)
            && let Some(receipt) = one.2.take()
        {
            queue.cancels(now, &receipt);
        }
    }
    came.retain(|one| one.2.is_some());
    let interval = i128::from(terms.interval);
    for (i, first) in came.iter().enumerate() {
        let mut released = 0;
        for last in came.iter().skip(i) {
            let apart = i128::from(last.0) - i128::from(first.0);
            let most = apart + i128::from(terms.delay) * interval;
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
fn a_queue_waits_like_the_list_of_those_who_stand_in_it() {
    holds(&(terms(), moves(true)), |(terms, moves)| {
        waits_like_the_list(Real::new(terms), terms, BEGIN, &moves)
    });
}

#[test]
fn i01_a_cancelled_wait_never_lets_two_leave_together() {
    holds(&(terms(), moves(true)), |(terms, moves)| {
        releases_are_apart(Real::new(terms), terms, BEGIN, &moves)
    });
}

/// Refunds a cancelled place although other requests stand behind it.
struct GivesBackTheMiddle(Real);

impl Queue for GivesBackTheMiddle {
    fn arrives(&mut self, now: u64, cost: u64) -> Option<(u64, Receipt)> {
        self.0.arrives(now, cost)
    }

    fn cancels(&mut self, now: u64, receipt: &Receipt) {
        let price = receipt.cost * self.0.0.interval().as_nanos();
        self.0.1 = self.0.1.saturating_sub(price).max(now);
    }
}

/// NGINX's arithmetic: thousandths of a request and milliseconds, both truncated at every request.
struct Truncates {
    terms: Terms,
    excess: i128,
    last: u64,
}

impl Queue for Truncates {
    fn arrives(&mut self, now: u64, cost: u64) -> Option<(u64, Receipt)> {
        let rate = 1_000_000_000_000 / i128::from(self.terms.interval);
        let millis = i128::from((now - self.last) / 1_000_000);
        let ahead = (self.excess - rate * millis / 1_000).max(0);
        let excess = ahead + 1_000 * i128::from(cost);
        if excess > 1_000 * (i128::from(self.terms.burst) + 1) {
            return None;
        }
        (self.excess, self.last) = (excess, now);
        let waits = (ahead - 1_000 * i128::from(self.terms.delay)).max(0);
        let wait = waits * 1_000 / rate.max(1) * 1_000_000;
        Some((u64::try_from(wait).unwrap(), Receipt::default()))
    }

    fn cancels(&mut self, _now: u64, _receipt: &Receipt) {}
}

#[test]
fn control_a_middle_place_given_back_is_caught_by_both() {
    caught(&(terms(), moves(true)), |(terms, moves)| {
        waits_like_the_list(GivesBackTheMiddle(Real::new(terms)), terms, BEGIN, &moves)
    });
    caught(&(terms(), moves(true)), |(terms, moves)| {
        releases_are_apart(GivesBackTheMiddle(Real::new(terms)), terms, BEGIN, &moves)
    });
}

#[test]
fn control_a_queue_truncated_at_every_request_is_caught() {
    let slow = (1_000_000_u64..5_000_000_000, 0_u64..12).prop_map(|(interval, burst)| Terms {
        interval,
        burst,
        delay: 0,
    });
    caught(&(slow, moves(false)), |(terms, moves)| {
        let queue = Truncates {
            terms,
            excess: 0,
            last: BEGIN,
        };
        waits_like_the_list(queue, terms, BEGIN, &moves)
    });
}
