//! Several limits and several limiters: all are charged or none.

use std::sync::Arc;

use tollgate::{
    Admission, BatchAdmission, Error, InvalidLimiter, Limiter, Limits, Nanos, Rate, SlidingLog,
    StoreErrorKind, check_all, refund_all,
};

use crate::{clock, denied, secs};

#[test]
fn if_one_limit_denies_no_limit_is_charged() {
    let limiter = Limiter::builder()
        .limit("loose", Rate::per_minute(100))
        .limit("log", SlidingLog::builder(100, Nanos::MINUTE))
        .limit("tight", Rate::per_minute(3))
        .clock(clock())
        .build()
        .unwrap();
    limiter.check_n("alice", 3).unwrap();
    for _ in 0..50 {
        assert_eq!(denied(limiter.check("alice")).limit(), "tight");
    }
    let left: Vec<_> = limiter
        .peek("alice")
        .unwrap()
        .limits()
        .map(|s| s.remaining)
        .collect();
    assert_eq!(left, [97, 97, 0]);
}

#[test]
fn the_denial_names_the_limit_with_the_longest_wait() {
    let limiter = Limiter::builder()
        .limit("second", Rate::per_second(1))
        .limit("hour", Rate::per_hour(1))
        .clock(clock())
        .build()
        .unwrap();
    limiter.check("alice").unwrap();
    let denied = denied(limiter.check("alice"));
    assert_eq!(
        (denied.limit(), denied.retry_after()),
        ("hour", Some(secs(3_600)))
    );
}

#[test]
fn limiters_with_a_shared_table_are_all_charged_or_none() {
    let clock = clock();
    let users = Limiter::per_minute(2)
        .name("user")
        .clock(Arc::clone(&clock))
        .build()
        .unwrap();
    let all = Limiter::per_minute(3)
        .name("everyone")
        .share_table_with(&users)
        .build()
        .unwrap();
    let tokens = Limiter::per_minute(1_000)
        .name("tokens")
        .share_table_with(&users)
        .build()
        .unwrap();
    let request = |user: &str, cost| {
        check_all(&[
            users.for_key(user),
            all.for_key(""),
            tokens.for_key(user).cost(cost),
        ])
    };
    request("alice", 400).unwrap();
    request("alice", 400).unwrap();
    assert_eq!(denied(request("alice", 1)).limit(), "user");
    request("bob", 1_000).unwrap();
    assert_eq!(denied(request("carol", 1)).limit(), "everyone");
    assert_eq!(
        denied(request("bob", 1_001)).limit(),
        "tokens",
        "`Never` has precedence over a retry time"
    );
    let left = |limiter: &Limiter<_>, key| limiter.peek(key).unwrap().tightest().remaining;
    assert_eq!((left(&users, "carol"), left(&tokens, "carol")), (2, 1_000));
    assert_eq!(
        (left(&users, "bob"), left(&tokens, "bob"), left(&all, "")),
        (1, 0, 0)
    );
}

/// Name, remaining units, limit and charge of every limit.
fn limits_of(admission: &BatchAdmission) -> Vec<(&str, u64, u64, u64)> {
    let limits = admission.limits();
    limits
        .map(|s| (s.name, s.limit, s.remaining, s.charged))
        .collect()
}

#[test]
fn check_all_reports_every_limit_and_can_be_refunded() {
    let clock = clock();
    let plan = Limiter::builder()
        .limit("minute", Rate::per_minute(10))
        .limit("log", SlidingLog::builder(100, Nanos::HOUR))
        .clock(Arc::clone(&clock))
        .build()
        .unwrap();
    let tokens = Limiter::per_minute(1_000).name("tokens");
    let tokens = tokens.share_table_with(&plan).build().unwrap();
    let items = [
        plan.for_key("alice").cost(2),
        tokens.for_key("team").cost(900),
    ];
    let admission = check_all(&items).unwrap();
    let expected = [
        ("minute", 10, 8, 2),
        ("log", 100, 98, 2),
        ("tokens", 1_000, 100, 900),
    ];
    assert_eq!(limits_of(&admission), expected);
    assert_eq!(admission.tightest().name, "tokens");
    assert_eq!(admission.tightest().reset_after, secs(54));
    assert_eq!(admission.wait(), secs(0));
    assert_eq!(
        admission.parts().iter().map(Admission::cost).max(),
        Some(900)
    );

    refund_all(&items, admission).unwrap();
    let again = check_all(&items).unwrap();
    assert_eq!(limits_of(&again), expected, "everything was refunded");

    // Half of the tokens were refilled in half a minute; that half is not refunded.
    clock.advance(Nanos::from_secs(30));
    let mut parts = again.into_parts();
    tokens.refund("team", parts.pop().unwrap()).unwrap();
    plan.refund("alice", parts.pop().unwrap()).unwrap();
    let left = |limiter: &Limiter<_>, key| limiter.peek(key).unwrap().tightest().remaining;
    assert_eq!((left(&plan, "alice"), left(&tokens, "team")), (10, 1_000));
}

#[test]
fn a_refund_with_other_items_is_refused() {
    let one = Limiter::per_minute(5).clock(clock()).build().unwrap();
    let other = Limiter::per_minute(5)
        .share_table_with(&one)
        .build()
        .unwrap();
    let both = [one.for_key("a"), other.for_key("a")];
    let admission = check_all(&both).unwrap();
    let refused = refund_all(&both[..1], admission).unwrap_err();
    assert!(matches!(refused, Error::Store(e) if e.kind() == StoreErrorKind::BadRequest));
    let admission = check_all(&both).unwrap();
    assert!(refund_all::<tollgate::SystemClock>(&[], admission).is_err());
    assert_eq!(one.peek("a").unwrap().tightest().remaining, 3);
}

#[test]
fn invalid_batches_are_refused_with_the_reason() {
    let one = Limiter::per_minute(2).clock(clock()).build().unwrap();
    let other = Limiter::per_minute(2).clock(clock()).build().unwrap();
    let kind = |answer: Result<BatchAdmission, Error>| match answer {
        Err(Error::Store(error)) => error.kind(),
        other => panic!("{other:?}"),
    };
    let apart = check_all(&[one.for_key("a"), other.for_key("a")]);
    assert_eq!(kind(apart), StoreErrorKind::BadRequest);
    let twice = check_all(&[one.for_key("a"), one.for_key("a")]);
    assert_eq!(kind(twice), StoreErrorKind::BadRequest);
    let keys: Vec<_> = (0..129_u8).map(|n| [n, n]).collect();
    let many: Vec<_> = keys.iter().map(|key| one.for_key(key)).collect();
    assert_eq!(kind(check_all(&many)), StoreErrorKind::BadRequest);
    assert_eq!(
        check_all(many.get(..128).unwrap()).unwrap().parts().len(),
        128
    );
    let long = vec![0; 2_000];
    assert!(matches!(
        check_all(&[one.for_key("b"), one.for_key(&long)]),
        Err(Error::KeyTooLong(_))
    ));
    assert_eq!(one.peek("b").unwrap().tightest().remaining, 2);
    let empty = check_all::<tollgate::SystemClock>(&[]).unwrap();
    assert_eq!(empty.limits().count(), 0);
    refund_all::<tollgate::SystemClock>(&[], empty).unwrap();
}

#[test]
fn limits_with_the_same_name_in_one_table_have_separate_state() {
    let one = Limiter::per_minute(2).clock(clock()).build().unwrap();
    let other = Limiter::per_minute(2)
        .share_table_with(&one)
        .build()
        .unwrap();
    one.check_n("alice", 2).unwrap();
    assert_eq!(other.check_n("alice", 2), Ok(()));
}

#[test]
fn i11_all_or_nothing_holds_when_threads_race() {
    let limiter = Limiter::builder()
        .limit("a", Rate::per_hour(500))
        .limit("b", Rate::per_hour(700))
        .clock(clock())
        .build()
        .unwrap();
    let admitted: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| (0..400).filter(|_| limiter.check("k").is_ok()).count()))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum()
    });
    assert_eq!(admitted, 500);
    let left: Vec<_> = limiter
        .peek("k")
        .unwrap()
        .limits()
        .map(|s| s.remaining)
        .collect();
    assert_eq!(left, [0, 200]);
}

#[test]
fn invalid_limits_are_refused_with_the_reason() {
    let none = Limiter::builder().build().unwrap_err();
    assert_eq!(none, InvalidLimiter::NoLimits);
    let twice = Limiter::builder()
        .limit("a", Rate::per_day(1))
        .limit("a", Rate::per_day(2));
    let text = "limit: \"a\" is not valid: another limit has this name, and they would share state";
    assert_eq!(twice.build().unwrap_err().to_string(), text);
    let nine = (0..9).fold(Limits::new(), |limits, n| {
        limits.limit(n.to_string(), Rate::per_day(1))
    });
    let limiter = Limiter::per_day(1).clock(clock()).build().unwrap();
    assert_eq!(
        limiter.replace(nine),
        Err(InvalidLimiter::TooManyLimits { count: 9 })
    );
    let quota = Limiter::per_second(5).burst(0).build().unwrap_err();
    let text = "limit \"rate\": burst: 0 is not valid: it must be at least 1; the nearest valid value is 1";
    assert_eq!(quota.to_string(), text);
    let size = Limiter::per_second(5).keys(0).build().unwrap_err();
    assert_eq!(
        size.to_string(),
        "keys: 0 is not valid: it must be at least 1"
    );
    let shared = Limiter::per_second(5)
        .keys(9)
        .share_table_with(&limiter)
        .build()
        .unwrap_err();
    assert_eq!(shared, InvalidLimiter::SizeOfSharedTable { keys: 9 });
}
