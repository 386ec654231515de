//! Every operation over Redis, and that concurrent callers get exactly the limit.

use tollgate::redis::{ReservationId, SettlementOutcome, check_all, refund_all};
use tollgate::{Error, Limiter, Rate, StoreErrorKind, TokenBucket};

use super::{another, server};
use crate::denied;

#[tokio::test]
async fn each_operation_works_as_in_memory() {
    let (_server, redis) = server().await;
    let day = Limiter::per_day(10).overdraft(5).with_redis(&redis);
    let day = day.build().unwrap();

    day.check("a").await.unwrap();
    day.check_n("a", 2).await.unwrap();
    let admission = day.spend("a", 3).await.unwrap();
    let status = admission.tightest();
    assert_eq!(
        (status.name, status.limit, status.remaining),
        ("rate", 10, 4)
    );
    assert_eq!(day.peek("a").await.unwrap().tightest().remaining, 4);
    assert_eq!(day.peek("a").await.unwrap().cost(), 0);
    assert_eq!(day.peek_n("a", 4).await.unwrap().cost(), 0);
    assert_eq!(denied(day.peek_n("a", 5).await).remaining(), 4);
    assert!(denied(day.check_n("a", 11).await).is_never());

    day.refund("a", admission).await.unwrap();
    assert_eq!(day.peek("a").await.unwrap().tightest().remaining, 7);
    assert_eq!(day.take_up_to("a", 5).await.unwrap().cost(), 5);
    assert_eq!(day.take_up_to("a", 5).await.unwrap().cost(), 2);
    denied(day.take_up_to("a", 5).await);
    assert_eq!(day.charge("a", 20).await.unwrap().cost(), 5);
    denied(day.check("a").await);

    day.check("b").await.unwrap();
    let long = "x".repeat(1_025);
    assert!(matches!(day.check(&long).await, Err(Error::KeyTooLong(_))));
}

#[tokio::test]
async fn several_limits_are_all_charged_or_none() {
    let (_server, redis) = server().await;
    let limiter = Limiter::builder()
        .limit("wide", Rate::per_day(100))
        .limit("narrow", TokenBucket::builder(Rate::per_day(100)).burst(10))
        .with_redis(&redis)
        .build()
        .unwrap();
    assert_eq!(denied(limiter.check_n("a", 11).await).limit(), "narrow");
    let untouched = limiter.peek("a").await.unwrap();
    let left: Vec<_> = untouched.limits().map(|s| (s.name, s.remaining)).collect();
    assert_eq!(left, [("wide", 100), ("narrow", 10)]);
    assert_eq!(limiter.take_up_to("a", 50).await.unwrap().cost(), 10);
    let admission = limiter.peek("a").await.unwrap();
    let left: Vec<_> = admission.limits().map(|s| s.remaining).collect();
    assert_eq!(left, [90, 0]);
}

#[tokio::test]
async fn a_reservation_is_settled_once_by_any_process_that_knows_its_id() {
    let (server, redis) = server().await;
    let tokens = || Limiter::per_day(1_000).name("tokens");
    let ours = tokens().with_redis(&redis).build().unwrap();
    let elsewhere = another(&server).await;
    let theirs = tokens().with_redis(&elsewhere).build().unwrap();
    let left = async || ours.peek("a").await.unwrap().tightest().remaining;

    let reserved = ours.reserve("a", 800).await.unwrap();
    assert_eq!((reserved.admission().cost(), left().await), (800, 200));
    denied(ours.reserve("a", 300).await);
    let id = reserved.id();
    drop(reserved);
    assert_eq!(left().await, 200, "a lost reservation stays charged");
    assert_eq!(
        theirs.settle("a", id, 300).await.unwrap(),
        SettlementOutcome::Done
    );
    assert_eq!(left().await, 700);
    assert_eq!(
        ours.settle("a", id, 100).await.unwrap(),
        SettlementOutcome::AlreadyClosed
    );
    assert_eq!(
        ours.cancel("a", id).await.unwrap(),
        SettlementOutcome::AlreadyClosed
    );
    assert_eq!(
        ours.cancel("b", id).await.unwrap(),
        SettlementOutcome::Unknown
    );
    assert_eq!(left().await, 700);

    let id = ReservationId(7);
    for _repeated in 0..3 {
        let again = ours.reserve_as("a", id, 50).await.unwrap();
        assert_eq!(again.admission().cost(), 50);
    }
    assert_eq!(left().await, 650);
    let again = theirs.reserve_as("a", id, 50).await.unwrap();
    assert_eq!(again.cancel().await.unwrap(), SettlementOutcome::Done);
    assert_eq!(
        again.cancel().await.unwrap(),
        SettlementOutcome::AlreadyClosed
    );
    assert_eq!(left().await, 700);
}

#[tokio::test]
async fn limiters_over_one_connection_are_all_charged_or_none() {
    let (server, redis) = server().await;
    let user = Limiter::per_day(5).name("user").with_redis(&redis);
    let user = user.build().unwrap();
    let everyone = Limiter::per_day(7).name("everyone").with_redis(&redis);
    let everyone = everyone.build().unwrap();
    let ask = async |key: &str, cost| {
        check_all(&[
            user.for_key(key).cost(cost),
            everyone.for_key("").cost(cost),
        ])
        .await
    };
    ask("a", 4).await.unwrap();
    assert_eq!(denied(ask("a", 2).await).limit(), "user");
    assert_eq!(denied(ask("b", 4).await).limit(), "everyone");
    ask("b", 3).await.unwrap();
    assert_eq!(user.peek("b").await.unwrap().tightest().remaining, 2);
    let empty = check_all(&[]).await.unwrap();
    refund_all(&[], empty).await.unwrap();

    let items = [user.for_key("b").cost(2), everyone.for_key("").cost(0)];
    let admission = check_all(&items).await.unwrap();
    let told: Vec<_> = admission
        .limits()
        .map(|s| (s.name, s.limit, s.remaining, s.charged))
        .collect();
    assert_eq!(told, [("user", 5, 0, 2), ("everyone", 7, 0, 0)]);
    refund_all(&items, admission).await.unwrap();
    assert_eq!(user.peek("b").await.unwrap().tightest().remaining, 2);
    let admission = check_all(&items[1..]).await.unwrap();
    assert!(refund_all(&items, admission).await.is_err());

    let elsewhere = another(&server).await;
    let stranger = Limiter::per_day(5).with_redis(&elsewhere).build().unwrap();
    let answer = check_all(&[user.for_key("c"), stranger.for_key("c")]).await;
    assert!(matches!(answer, Err(Error::Store(e)) if e.kind() == StoreErrorKind::BadRequest));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_tasks_of_two_processes_get_exactly_the_limit() {
    let (server, redis) = server().await;
    let elsewhere = another(&server).await;
    let mut tasks = tokio::task::JoinSet::new();
    for redis in [&redis, &elsewhere] {
        let limiter = Limiter::builder()
            .limit("a", Rate::per_day(100))
            .limit("b", Rate::per_day(1_000))
            .with_redis(redis)
            .build()
            .unwrap();
        for _task in 0..32 {
            let limiter = limiter.clone();
            tasks.spawn(async move {
                let mut admitted = 0;
                for _call in 0..10 {
                    match limiter.check("hot").await {
                        Ok(()) => admitted += 1,
                        Err(Error::Denied(_)) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
                admitted
            });
        }
    }
    let admitted: u64 = tasks.join_all().await.into_iter().sum();
    assert_eq!(admitted, 100);
}
