//! Which state a limit uses, and which settings cannot be built.

use tollgate::{ConcurrencyLimiter, InvalidLimiter, Limiter, Limits, Rate};

use super::{another, server};
use crate::secs;

#[tokio::test]
async fn a_limit_is_found_by_its_name_in_any_order() {
    let (server, redis) = server().await;
    let old = Limiter::builder()
        .limit("a", Rate::per_day(10))
        .limit("b", Rate::per_day(20));
    let old = old.with_redis(&redis).build().unwrap();
    old.check_n("x", 5).await.unwrap();
    // The next version of a program while the old one still runs: a new first limit, another order, another quota.
    let elsewhere = another(&server).await;
    let new = Limiter::builder()
        .limit("c", Rate::per_day(30))
        .limit("b", Rate::per_day(20))
        .limit("a", Rate::per_day(12));
    let new = new.with_redis(&elsewhere).build().unwrap();
    let standings = new.peek("x").await.unwrap();
    let left: Vec<_> = standings.limits().map(|s| (s.name, s.remaining)).collect();
    assert_eq!(left.first(), Some(&("c", 30)));
    assert_eq!(left.get(1), Some(&("b", 15)));
    assert!(left.get(2).is_some_and(|(_, left)| *left < 12), "{left:?}");
}

#[tokio::test]
async fn a_renamed_limit_keeps_its_state_by_its_id() {
    let (server, redis) = server().await;
    let old = Limiter::per_day(10)
        .name("old")
        .with_redis(&redis)
        .id("old", 7);
    let old = old.build().unwrap();
    old.check_n("x", 4).await.unwrap();
    let elsewhere = another(&server).await;
    let new = Limiter::per_day(10).name("new").with_redis(&elsewhere);
    let new = new.id("new", 7).build().unwrap();
    assert_eq!(new.peek("x").await.unwrap().tightest().remaining, 6);
}

#[tokio::test]
async fn another_algorithm_treats_unreadable_state_as_absent() {
    let (server, redis) = server().await;
    let bucket = Limiter::per_day(10).with_redis(&redis).build().unwrap();
    bucket.check_n("x", 4).await.unwrap();
    let elsewhere = another(&server).await;
    let log = tollgate::SlidingLog::builder(10, tollgate::Nanos::DAY);
    let log = Limiter::builder().limit("rate", log).with_redis(&elsewhere);
    let log = log.build().unwrap();
    assert_eq!(log.spend("x", 1).await.unwrap().tightest().remaining, 9);
    assert_eq!(elsewhere.corrupt_states(), 1, "and it is counted");
}

#[tokio::test]
async fn replaced_limits_keep_their_state_and_cannot_take_ids_of_others() {
    let (_server, redis) = server().await;
    let limiter = Limiter::per_day(10).with_redis(&redis).build().unwrap();
    let other = Limiter::per_day(10).name("other").with_redis(&redis);
    let other = other.build().unwrap();
    limiter.check_n("x", 10).await.unwrap();
    // The debt of a day is more than the new burst allows.
    let smaller = tollgate::TokenBucket::builder(Rate::per_day(10)).burst(2);
    limiter.replace(Limits::from_limit(smaller)).unwrap();
    let refused = crate::denied(limiter.check("x").await);
    assert!(refused.retry_after().unwrap() > secs(77_000), "{refused}");
    assert_eq!(limiter.peek("y").await.unwrap().tightest().remaining, 2);

    let both = Limits::from_limit(smaller).limit("other", Rate::per_day(1));
    assert!(matches!(
        limiter.replace(both.clone()),
        Err(InvalidLimiter::SameId { .. })
    ));
    assert_eq!(limiter.peek("y").await.unwrap().limits().count(), 1);
    drop(other);
    limiter.replace(both).unwrap();
    assert_eq!(limiter.peek("y").await.unwrap().limits().count(), 2);
    let third = Limits::new().limit("third", Rate::per_day(1));
    limiter.replace(third).unwrap();
    Limiter::per_day(10).with_redis(&redis).build().unwrap();
}

/// Another process does not know the old window; the state contains it.
#[tokio::test]
async fn a_sliding_counter_with_another_window_keeps_its_estimate() {
    let (server, redis) = server().await;
    let over = |redis, days: u64| {
        let window = tollgate::Nanos::from_secs(86_400 * days);
        let counter = tollgate::SlidingCounter::builder(100, window);
        let counter = Limiter::builder().limit("rate", counter).with_redis(redis);
        counter.build().unwrap()
    };
    over(&redis, 10_000).check_n("x", 60).await.unwrap();
    let elsewhere = another(&server).await;
    let new = over(&elsewhere, 1);
    assert_eq!(new.spend("x", 5).await.unwrap().tightest().remaining, 35);
    assert_eq!(elsewhere.corrupt_states(), 0);
}

#[tokio::test]
async fn a_rebuilt_limiter_keeps_its_state() {
    let (_server, redis) = server().await;
    let build = || Limiter::per_day(10).with_redis(&redis).build();
    let first = build().unwrap();
    first.check_n("x", 4).await.unwrap();
    let clone = first.clone();
    drop(first);
    assert!(matches!(build(), Err(InvalidLimiter::SameId { .. })));
    drop(clone);
    let second = build().unwrap();
    assert_eq!(second.peek("x").await.unwrap().tightest().remaining, 6);
}

#[tokio::test]
async fn invalid_settings_cannot_be_built() {
    let (_server, redis) = server().await;
    let refused = |error: Result<_, InvalidLimiter>| {
        let error: Result<tollgate::redis::Limiter, _> = error;
        error.unwrap_err().to_string()
    };
    assert_eq!(
        refused(Limiter::per_day(1).keys(5).with_redis(&redis).build()),
        "keys: not valid over Redis: only a limiter in memory has this setting"
    );
    let memory = Limiter::per_day(1).build().unwrap();
    let shared_table = Limiter::per_day(1)
        .share_table_with(&memory)
        .with_redis(&redis);
    assert!(refused(shared_table.build()).starts_with("share_table_with: "));
    let typo = Limiter::per_day(1).with_redis(&redis).id("rite", 7);
    assert_eq!(
        refused(typo.build()),
        "limit \"rite\": id: 7 is not valid: the limiter has no limit with this name"
    );
    let zero = Limiter::per_day(1).with_redis(&redis).id("rate", 0);
    assert_eq!(
        refused(zero.build()),
        "limit \"rate\": id: 0 is not valid: it must be at least 1"
    );
    let endless = ConcurrencyLimiter::builder(1)
        .with_redis(&redis)
        .build()
        .unwrap_err();
    assert!(matches!(endless, InvalidLimiter::NoLease { .. }));

    let gate = ConcurrencyLimiter::builder(1)
        .lease(secs(9))
        .with_redis(&redis)
        .id(7);
    let gate = gate.build().unwrap();
    let met = Limiter::per_day(1).with_redis(&redis).id("rate", 7);
    assert!(
        refused(met.build()).contains("limit \"concurrency\" over this connection has the same id")
    );
    drop(gate);
    Limiter::per_day(1).with_redis(&redis).build().unwrap();
}
