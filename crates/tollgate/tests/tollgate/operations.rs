//! Each operation: what it charges and what it returns.

use std::sync::Arc;
use std::time::Duration;

use tollgate::{
    FixedWindow, Key, LeakyBucket, Limiter, Nanos, Rate, SlidingLog, TokenBucket, Window,
};

use crate::{clock, denied, millis, secs};

#[test]
fn spend_returns_the_status_of_every_limit() {
    let limiter = Limiter::builder()
        .limit("minute", Rate::per_minute(60))
        .limit(
            "hour",
            FixedWindow::builder(100, Window::Epoch(Nanos::HOUR)),
        )
        .clock(clock())
        .build()
        .unwrap();
    let admission = limiter.spend("alice", 50).unwrap();
    assert_eq!((admission.cost(), admission.wait()), (50, secs(0)));
    let left: Vec<_> = admission
        .limits()
        .map(|s| (s.name, s.remaining, s.limit))
        .collect();
    assert_eq!(left, [("minute", 10, 60), ("hour", 50, 100)]);
    assert_eq!(admission.tightest().name, "minute");
    assert_eq!(admission.tightest().reset_after, secs(50));
}

#[test]
fn peek_changes_nothing() {
    let limiter = Limiter::per_minute(10).clock(clock()).build().unwrap();
    for _ in 0..20 {
        let peeked = limiter.peek_n("alice", 10).unwrap();
        assert_eq!((peeked.cost(), peeked.tightest().remaining), (0, 10));
        limiter.refund("alice", peeked).unwrap();
    }
    limiter.check_n("alice", 4).unwrap();
    assert_eq!(denied(limiter.peek_n("alice", 7)).remaining(), 6);
    assert_eq!(limiter.peek("alice").unwrap().tightest().remaining, 6);
}

#[test]
fn take_up_to_spends_what_is_available_on_every_limit() {
    let limiter = Limiter::builder()
        .limit("minute", Rate::per_minute(60))
        .limit("log", SlidingLog::builder(45, Nanos::HOUR))
        .clock(clock())
        .build()
        .unwrap();
    assert_eq!(limiter.take_up_to("alice", 30).unwrap().cost(), 30);
    let rest = limiter.take_up_to("alice", 30).unwrap();
    assert_eq!(rest.cost(), 15);
    let left: Vec<_> = rest.limits().map(|s| s.remaining).collect();
    assert_eq!(left, [15, 0], "both limits are charged the same");
    assert_eq!(denied(limiter.take_up_to("alice", 30)).limit(), "log");
    assert_eq!(limiter.take_up_to("bob", 0).unwrap().cost(), 0);
}

#[test]
fn charge_never_denies_and_stops_at_the_overdraft() {
    let clock = clock();
    let builder = Limiter::per_second(10).overdraft(5);
    let limiter = builder.clock(Arc::clone(&clock)).build().unwrap();
    assert_eq!(limiter.charge("alice", 12).unwrap().cost(), 12);
    assert_eq!(
        limiter.charge("alice", 12).unwrap().cost(),
        3,
        "down to the overdraft"
    );
    let denied = denied(limiter.check("alice"));
    assert_eq!(denied.retry_after(), Some(millis(600).into()));
    assert_eq!(denied.reset_after(), Some(millis(1_500).into()));
}

#[test]
fn a_refund_returns_only_what_was_not_refilled() {
    let clock = clock();
    let limiter = Limiter::per_second(10)
        .clock(Arc::clone(&clock))
        .build()
        .unwrap();
    let admission = limiter.spend("alice", 10).unwrap();
    clock.advance(millis(300));
    limiter.refund("alice", admission).unwrap();
    assert_eq!(limiter.peek("alice").unwrap().tightest().remaining, 10);
    limiter.check_n("alice", 10).unwrap();
    assert!(limiter.check("alice").is_err(), "ten units, not thirteen");
}

#[test]
fn a_reservation_is_settled_at_the_actual_cost() {
    let limiter = Limiter::per_minute(1_000)
        .overdraft(500)
        .clock(clock())
        .build()
        .unwrap();
    let left = || limiter.peek("team").unwrap().tightest().remaining;
    let reserved = limiter.reserve("team", 800).unwrap();
    assert_eq!((reserved.admission().cost(), left()), (800, 200));
    reserved.settle(300).unwrap();
    assert_eq!(left(), 700);
    limiter.reserve("team", 600).unwrap().cancel().unwrap();
    assert_eq!(left(), 700);
    limiter.reserve("team", 600).unwrap().settle(900).unwrap();
    assert_eq!(
        left(),
        0,
        "the difference is charged although it is not available"
    );
    assert_eq!(
        denied(limiter.check("team")).retry_after(),
        Some(millis(201 * 60).into())
    );
}

#[test]
fn a_dropped_reservation_stays_charged() {
    let limiter = Limiter::per_minute(1_000).clock(clock()).build().unwrap();
    drop(limiter.reserve("team", 800).unwrap());
    assert_eq!(limiter.peek("team").unwrap().tightest().remaining, 200);
}

#[test]
fn a_queue_denies_check_and_gives_spend_a_slot() {
    let clock = clock();
    let queue = LeakyBucket::queue(Rate::per_second(10)).burst(2);
    let builder = Limiter::builder().limit("queue", queue);
    let limiter = builder.clock(Arc::clone(&clock)).build().unwrap();
    limiter.check("alice").unwrap();
    for _ in 0..10 {
        let denied = denied(limiter.check("alice"));
        assert_eq!(
            denied.retry_after(),
            Some(millis(100).into()),
            "and nothing is charged"
        );
    }
    assert_eq!(
        limiter.spend("alice", 1).unwrap().wait(),
        Duration::from(millis(100))
    );
    assert_eq!(
        limiter.spend("alice", 1).unwrap().wait(),
        Duration::from(millis(200))
    );
    assert_eq!(denied(limiter.spend("alice", 1)).limit(), "queue");
    clock.advance(millis(300));
    assert_eq!(limiter.check("alice"), Ok(()));
}

#[test]
fn keys_of_parts_cannot_be_imitated() {
    let limiter = Limiter::per_hour(1).clock(clock()).build().unwrap();
    for parts in [[b"a_b".as_slice(), b"c"], [b"a", b"b_c"]] {
        assert_eq!(
            limiter.check(Key::from_parts(&parts).unwrap()),
            Ok(()),
            "{parts:?}"
        );
    }
    limiter.check("alice").unwrap();
    let same = limiter.check(Key::from_parts(&[b"alice"]).unwrap());
    assert!(same.is_err(), "one part is the key itself");
    assert!(limiter.check(String::from("alice")).is_err() && limiter.check(b"alice").is_err());
}

#[test]
fn a_reset_key_has_its_full_quota() {
    let limiter = Limiter::builder()
        .limit("hour", Rate::per_hour(1))
        .limit("log", SlidingLog::builder(1, Nanos::HOUR))
        .clock(clock())
        .build()
        .unwrap();
    assert_eq!(limiter.reset("alice"), Ok(false));
    limiter.check("alice").unwrap();
    assert_eq!(limiter.reset("alice"), Ok(true));
    assert_eq!(limiter.check("alice"), Ok(()));
}

#[test]
fn every_algorithm_supports_every_operation() {
    let token = TokenBucket::builder(Rate::per_minute(10)).build().unwrap();
    let limiter = Limiter::builder()
        .limit("built", token)
        .clock(clock())
        .build()
        .unwrap();
    let reserved = limiter.reserve("k", 3).unwrap();
    limiter.refund("k", limiter.spend("k", 2).unwrap()).unwrap();
    reserved.settle(4).unwrap();
    assert_eq!(limiter.peek("k").unwrap().tightest().remaining, 6);
}
