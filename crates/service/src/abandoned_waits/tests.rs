//! Waits that are given up: the limit holds, later requests keep their turns, and everything that can come back does.

use super::*;
use crate::{Secret, Transport};
use tollgate_core::{Nanos, Outcome, Timestamp};
use tollgate_engine::{CheckMode, CheckOptions};
use tollgate_policy::attributes::{Attribute, Attributes};
use tollgate_policy::source::SourceFormat;
use tollgate_store::ManualClock;
use tollgate_testkit::seeded_rng::SeededRng;

const START: Timestamp = Timestamp::from_secs(1_700_000_000);
const INTERVAL: u64 = 1_000_000_000;

struct Nobody;

impl Attributes for Nobody {
    fn get(&self, _: &Attribute) -> Option<&[u8]> {
        None
    }
}

type TestService = Arc<RateLimitService<Arc<ManualClock>>>;

fn service(burst: u64) -> (TestService, Arc<ManualClock>) {
    service_of(&format!("rate: 1/s, burst: {burst}, wait: 20s"))
}

fn service_of(limit: &str) -> (TestService, Arc<ManualClock>) {
    let text = format!("limits: [{{ name: one, {limit} }}]");
    let policy = tollgate_policy::load(&text, "p.yaml", SourceFormat::Yaml).unwrap();
    let clock = Arc::new(ManualClock::at(START));
    let service = RateLimitService::new(&policy, 100, Arc::clone(&clock), Secret::random());
    (Arc::new(service.unwrap()), clock)
}

/// What became of a request.
enum Asked {
    Proceeds,
    Waits(Nanos, Ticket),
    Denied,
}

fn ask(service: &TestService, cost: u64) -> Asked {
    let options = CheckOptions {
        cost: Some(cost),
        ..CheckOptions::default()
    };
    let mut verdict = service
        .check_local(Transport::Http, &Nobody, options)
        .unwrap();
    match verdict.outcome() {
        Outcome::Allow => Asked::Proceeds,
        Outcome::Wait(wait) => Asked::Waits(wait, verdict.take_wait_ticket().unwrap()),
        _ => Asked::Denied,
    }
}

/// Asks for a place that must have its turn at this second of the test.
fn reserve(service: &TestService, cost: u64, turn: u64) -> Option<Ticket> {
    let now = service.now();
    let (at, ticket) = match ask(service, cost) {
        Asked::Proceeds => (now, None),
        Asked::Waits(wait, ticket) => (now.after(wait), Some(ticket)),
        Asked::Denied => panic!("{cost} units were denied"),
    };
    assert_eq!(at, START.after(Nanos::from_secs(turn)), "{cost} units");
    ticket
}

/// How a request leaves: as in one process, or as in a fleet, where the store decides what comes back.
type GiveUp = fn(&TestService, Ticket);

const WAYS: [GiveUp; 2] = [leave_process, leave_fleet];

fn leave_process(service: &TestService, ticket: Ticket) {
    service.abandon(ticket);
}

/// What nodes of a fleet do, with the memory store in place of Redis.
fn leave_fleet(service: &TestService, mut ticket: Ticket) {
    let now = service.now();
    let mut queues = service.abandoned_waits.lock();
    for wait in ticket.take_waits(now) {
        queues.insert(wait);
    }
    while let Some((queue, place)) = queues.take_due(now) {
        let mut departure = place.wait.departure(place.charged);
        run_local(&mut departure, service.engine().store());
        let is_behind = departure.is_behind();
        drop(departure);
        queues.departed(queue, place, is_behind, now);
    }
}

/// Whether requests of these costs that proceed at these times keep to the limit in every window.
fn is_within_limit(mut proceeded: Vec<(u64, u64)>, burst: u64) -> bool {
    proceeded.sort_unstable();
    let mut full_at = 0_u64;
    proceeded.into_iter().all(|(at, cost)| {
        full_at = full_at.max(at) + cost * INTERVAL;
        full_at - at <= burst * INTERVAL
    })
}

/// Requests of up to `most` units arrive and waiting ones leave at random; `give_up` says how. Answers when the others proceed.
fn run(
    seed: u64,
    (burst, most): (u64, u64),
    give_up: impl Fn(&TestService, Ticket),
) -> (Vec<(u64, u64)>, usize, usize) {
    let mut random = SeededRng::new(seed);
    let (service, clock) = service(burst);
    let (mut proceeded, mut waiting) = (Vec::new(), Vec::new());
    let (mut gone, mut denied) = (0, 0);
    for _ in 0..400 {
        let now = service.now();
        match random.below(10) {
            0..5 => {
                let cost = 1 + random.below(most);
                match ask(&service, cost) {
                    Asked::Proceeds => proceeded.push((now.as_nanos(), cost)),
                    Asked::Waits(wait, ticket) => waiting.push((now.after(wait), cost, ticket)),
                    Asked::Denied => denied += 1,
                }
            }
            5..9 if !waiting.is_empty() => {
                let index = random.below(waiting.len() as u64);
                let (turn, cost, ticket) = waiting.swap_remove(usize::try_from(index).unwrap());
                if turn > now {
                    gone += 1;
                    give_up(&service, ticket);
                } else {
                    proceeded.push((turn.as_nanos(), cost));
                }
            }
            _ => clock.advance(Nanos::from_millis(random.below(700))),
        }
    }
    proceeded.extend(
        waiting
            .into_iter()
            .map(|(turn, cost, _)| (turn.as_nanos(), cost)),
    );
    (proceeded, gone, denied)
}

/// I-01 with waits that are given up in any order.
#[test]
fn i01_abandoned_waits_never_admit_more_than_the_limit() {
    let (mut gone, mut denied) = (0, 0);
    for seed in 0..60 {
        for quota in [(1, 1), (2, 1), (5, 1), (4, 4), (10, 10), (10, 4)] {
            for (way, give_up) in WAYS.into_iter().enumerate() {
                let (proceeded, left, refused) = run(seed, quota, give_up);
                gone += left;
                denied += refused;
                assert!(
                    is_within_limit(proceeded, quota.0),
                    "seed {seed}, burst and costs {quota:?}, way {way}"
                );
            }
        }
    }
    assert!(gone > 1_000 && denied > 10, "{gone} left, {denied} denied");
}

/// The refund of a plain bucket, which does not know of requests behind, breaks the limit: two proceed at one time.
#[test]
fn control_a_refund_from_the_middle_of_the_queue_is_found() {
    let refund = |service: &TestService, ticket| {
        let _cancelled = service.engine().cancel(ticket);
    };
    let is_broken = |seed| !is_within_limit(run(seed, (1, 1), refund).0, 1);
    assert!((0..50).any(is_broken));
}

/// If all clients leave, in any order, the bucket is as if none had come.
#[test]
fn if_all_leave_everything_comes_back() {
    for seed in 0..200 {
        let mut random = SeededRng::new(seed);
        let (service, _clock) = service(10);
        reserve(&service, 10, 0);
        let mut waiting = Vec::new();
        while let Asked::Waits(_, ticket) = ask(&service, 1 + random.below(8)) {
            waiting.push(ticket);
        }
        while !waiting.is_empty() {
            let index = random.below(waiting.len() as u64);
            service.abandon(waiting.swap_remove(usize::try_from(index).unwrap()));
        }
        reserve(&service, 1, 1);
    }
}

/// Go's `x/time/rate` has these cases in its tests (`TestCancelLast`, `TestCancel0Tokens`, `TestCancel1Token`, `TestCancelMulti`). Ours
/// gave back nothing of a place in the middle, and a place was lost if it was cancelled at its turn.
#[test]
fn cancelled_waits_come_back_as_in_x_time_rate() {
    WAYS.into_iter().for_each(x_time_rate_cases);
}

fn x_time_rate_cases(give_up: GiveUp) {
    let after = |seconds| Nanos::from_secs(seconds);
    // The last one leaves after 1 of 2 seconds: all of it comes back.
    let (last, clock) = service(2);
    reserve(&last, 2, 0);
    let leaving = reserve(&last, 2, 2).unwrap();
    clock.advance(after(1));
    give_up(&last, leaving);
    reserve(&last, 2, 2);
    // As much stands behind it as it is worth: nothing comes back.
    let (nothing, _clock) = service(2);
    reserve(&nothing, 2, 0);
    let leaving = reserve(&nothing, 1, 1).unwrap();
    let _behind = reserve(&nothing, 1, 2);
    give_up(&nothing, leaving);
    reserve(&nothing, 1, 3);
    // It is worth one more than what stands behind it, and leaves at its turn.
    let (one, clock) = service(2);
    reserve(&one, 2, 0);
    let leaving = reserve(&one, 2, 2).unwrap();
    let _behind = reserve(&one, 1, 3);
    clock.advance(after(2));
    give_up(&one, leaving);
    reserve(&one, 2, 4);
    // The last one leaves, then the first: two of its three units come back.
    let (multi, clock) = service(4);
    reserve(&multi, 4, 0);
    let first = reserve(&multi, 3, 3).unwrap();
    let _second = reserve(&multi, 1, 4);
    let third = reserve(&multi, 1, 5).unwrap();
    clock.advance(after(1));
    give_up(&multi, third);
    give_up(&multi, first);
    reserve(&multi, 3, 5);
}

/// In a fleet a place in the middle came back only if it was the end of its queue. Now a part of it does, once until the promises that it
/// was promised with have passed: the end of a shortened queue no longer tells what stands behind another place.
#[test]
fn i01_a_shortened_queue_of_a_fleet_is_not_shortened_again() {
    let (fleet, clock) = service(4);
    reserve(&fleet, 4, 0);
    let first = reserve(&fleet, 3, 3).unwrap();
    let second = reserve(&fleet, 4, 7).unwrap();
    let _stays = reserve(&fleet, 1, 8);
    leave_fleet(&fleet, second);
    // By the end of the queue, two units stand behind it. One more would be given back, and the last one be served at 8 as well.
    leave_fleet(&fleet, first);
    let _later = reserve(&fleet, 4, 9);
    // When all that was promised has passed, a place in the middle comes back again.
    clock.advance(Nanos::from_secs(13));
    reserve(&fleet, 4, 13);
    let third = reserve(&fleet, 3, 16).unwrap();
    let _stays = reserve(&fleet, 1, 17);
    leave_fleet(&fleet, third);
    reserve(&fleet, 1, 16);
}

/// A leaky queue serves one request after the other. A part of a place in its middle came back, and the next request was served
/// together with one that had its turn.
#[test]
fn nothing_comes_back_from_the_middle_of_a_leaky_queue() {
    for give_up in WAYS {
        let (queue, _clock) = service_of("rate: 1/s, burst: 20, algorithm: leaky_queue");
        reserve(&queue, 1, 0);
        let leaving = reserve(&queue, 3, 1).unwrap();
        let behind = reserve(&queue, 1, 4).unwrap();
        give_up(&queue, leaving);
        let last = reserve(&queue, 1, 5).unwrap();
        // If those behind leave too, all of it comes back.
        give_up(&queue, last);
        give_up(&queue, behind);
        reserve(&queue, 1, 1);
    }
}

/// 1/s with a burst of 4: four at once, three that wait and leave after 1.5 s. What leaked meanwhile was kept from the refund, so the
/// bucket was full 4 s later instead of 2.5 s.
#[test]
fn a_cancelled_wait_gives_back_all_of_its_charge() {
    for give_up in WAYS {
        let (service, clock) = service(4);
        reserve(&service, 4, 0);
        let leaving = reserve(&service, 3, 3).unwrap();
        clock.advance(Nanos::from_millis(1_500));
        give_up(&service, leaving);
        clock.advance(Nanos::from_millis(2_500));
        reserve(&service, 4, 4);
    }
}

/// A request that turns out cheaper than its estimate gives the rest back, although later requests were promised turns that count it:
/// kept back, a busy limit would be charged estimates for ever. So a window may hold what the queue holds beside the burst, and no more.
#[test]
fn i01_requests_settled_lower_admit_at_most_burst_and_queue() {
    let mut is_beyond_burst = false;
    for seed in 0..100 {
        let mut random = SeededRng::new(seed);
        let (service, clock) = service(10);
        let (mut proceeded, mut estimated) = (Vec::new(), Vec::new());
        for _ in 0..400 {
            let now = service.now();
            if random.below(10) < 4 {
                let options = CheckOptions {
                    cost: Some(1 + random.below(10)),
                    mode: CheckMode::Reserve,
                    ..CheckOptions::default()
                };
                let decided = service.check_local(Transport::Http, &Nobody, options);
                let mut verdict = decided.unwrap();
                let turn = match verdict.outcome() {
                    Outcome::Allow => now,
                    Outcome::Wait(wait) => now.after(wait),
                    _ => continue,
                };
                estimated.push((turn, options.cost.unwrap(), verdict.take_ticket().unwrap()));
            } else {
                clock.advance(Nanos::from_millis(random.below(1_500)));
            }
            while let Some(index) = estimated
                .iter()
                .position(|(turn, ..)| *turn <= service.now())
            {
                let (turn, estimate, ticket) = estimated.swap_remove(index);
                let cost = random.below(estimate + 1);
                service.engine().settle(ticket, cost).unwrap();
                proceeded.push((turn.as_nanos(), cost));
            }
        }
        is_beyond_burst |= !is_within_limit(proceeded.clone(), 10);
        assert!(is_within_limit(proceeded, 10 + 20), "seed {seed}");
    }
    assert!(is_beyond_burst, "the wider bound is needed");
}

#[test]
fn i06_kept_places_are_bounded_and_forgotten_at_their_turn() {
    let (service, clock) = service(1);
    let mut waits = Vec::new();
    for _ in 0..21 {
        if let Asked::Waits(_, ticket) = ask(&service, 1) {
            waits.push(ticket);
        }
    }
    // The last one stays, so that nothing comes back. There is room for five of nineteen.
    let last = waits.pop();
    service.abandoned_waits.lock().capacity = 5;
    for ticket in waits {
        service.abandon(ticket);
    }
    let mut queues = service.abandoned_waits.lock();
    assert_eq!((queues.places, queues.due.len()), (5, 0));
    assert!(queues.is_full(service.now()));
    // The first three have had their turns.
    clock.advance(Nanos::from_millis(3_001));
    assert!(!queues.is_full(service.now()), "they make room");
    assert_eq!(queues.places, 2);
    drop(queues);
    // The places before the last one were not kept, so only its own comes back.
    service.abandon(last.unwrap());
    let queues = service.abandoned_waits.lock();
    assert_eq!((queues.places, queues.due.len()), (2, 0));
}
