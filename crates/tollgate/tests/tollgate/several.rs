//! Several limits, several limiters: all or nothing.

use std::sync::Arc;

use tollgate::{
    Error, ErrorKind, InvalidLimiter, Limiter, Limits, Nanos, Rate, SlidingLog, check_all,
};

use crate::{clock, denied, secs};

#[test]
fn what_one_limit_refuses_no_other_is_charged_for() {
    let limiter = Limiter::builder()
        .limit("loose", Rate::per_minute(100))
        .limit("log", SlidingLog::of(100, Nanos::MINUTE))
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
fn the_denial_names_the_limit_to_wait_for_longest() {
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
fn limiters_beside_each_other_are_charged_together_or_not_at_all() {
    let clock = clock();
    let users = Limiter::per_minute(2)
        .name("user")
        .clock(Arc::clone(&clock))
        .build()
        .unwrap();
    let all = Limiter::per_minute(3)
        .name("everyone")
        .beside(&users)
        .build()
        .unwrap();
    let tokens = Limiter::per_minute(1_000)
        .name("tokens")
        .beside(&users)
        .build()
        .unwrap();
    let request =
        |user: &str, cost| check_all(&[users.ask(user), all.ask(""), tokens.ask(user).cost(cost)]);
    request("alice", 400).unwrap();
    request("alice", 400).unwrap();
    assert_eq!(denied(request("alice", 1)).limit(), "user");
    request("bob", 1_000).unwrap();
    assert_eq!(denied(request("carol", 1)).limit(), "everyone");
    assert_eq!(
        denied(request("bob", 1_001)).limit(),
        "tokens",
        "never outranks not yet"
    );
    let left = |limiter: &Limiter<_>, key| limiter.peek(key).unwrap().tightest().remaining;
    assert_eq!((left(&users, "carol"), left(&tokens, "carol")), (2, 1_000));
    assert_eq!(
        (left(&users, "bob"), left(&tokens, "bob"), left(&all, "")),
        (1, 0, 0)
    );
}

#[test]
fn asking_together_makes_sense_or_says_why_not() {
    let one = Limiter::per_minute(2).clock(clock()).build().unwrap();
    let other = Limiter::per_minute(2).clock(clock()).build().unwrap();
    let kind = |answer: Result<(), Error>| match answer {
        Err(Error::Store(error)) => error.kind(),
        other => panic!("{other:?}"),
    };
    let apart = check_all(&[one.ask("a"), other.ask("a")]);
    assert_eq!(kind(apart), ErrorKind::BadRequest);
    let twice = check_all(&[one.ask("a"), one.ask("a")]);
    assert_eq!(kind(twice), ErrorKind::BadRequest);
    let keys: Vec<_> = (0..33_u8).map(|n| [n]).collect();
    let many: Vec<_> = keys.iter().map(|key| one.ask(key)).collect();
    assert_eq!(kind(check_all(&many)), ErrorKind::BadRequest);
    assert_eq!(check_all(many.get(..32).unwrap()), Ok(()));
    let long = vec![0; 2_000];
    assert!(matches!(
        check_all(&[one.ask("b"), one.ask(&long)]),
        Err(Error::KeyTooLong(_))
    ));
    assert_eq!(one.peek("b").unwrap().tightest().remaining, 2);
    assert_eq!(check_all::<tollgate::SystemClock>(&[]), Ok(()));
}

#[test]
fn limits_of_the_same_name_beside_each_other_stay_apart() {
    let one = Limiter::per_minute(2).clock(clock()).build().unwrap();
    let other = Limiter::per_minute(2).beside(&one).build().unwrap();
    one.check_n("alice", 2).unwrap();
    assert_eq!(other.check_n("alice", 2), Ok(()));
}

#[test]
fn all_or_nothing_holds_when_threads_race() {
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
fn limits_that_make_no_sense_are_refused_by_name() {
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
        .beside(&limiter)
        .build()
        .unwrap_err();
    assert_eq!(shared, InvalidLimiter::SizeOfSharedTable { keys: 9 });
}
