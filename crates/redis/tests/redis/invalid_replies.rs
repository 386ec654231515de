//! Replies that no healthy server sends: each becomes one kind of error, and nothing panics.

use std::sync::atomic::Ordering;

use tollgate_core::concurrency::LeaseId;
use tollgate_core::reservation::ReservationId;
use tollgate_core::{Concurrency, FixedWindow, Nanos, SlidingCounter, SlidingLog, Window};
use tollgate_redis::wire::decode;
use tollgate_store::{IdentifiedLimit, Op, QuotaCheck, StoreErrorKind, StoreKey};

use crate::differential::BLANK;
use crate::fake_server::FakeServer;
use crate::server_time::{decide_one, long_timeout_store, numbered_limit, slow_bucket};
use crate::trace::TestRng;

#[tokio::test]
async fn s_11_every_error_reply_is_one_kind_of_error() {
    use StoreErrorKind::{InvalidReply, Refused};
    let table = [
        ("LOADING Redis is loading the dataset in memory", Refused),
        (
            "READONLY You can't write against a read only replica.",
            Refused,
        ),
        (
            "OOM command not allowed when used memory > 'maxmemory'.",
            Refused,
        ),
        ("BUSY Redis is busy running a script.", Refused),
        ("MISCONF Redis is configured to save RDB snapshots", Refused),
        ("NOREPLICAS Not enough good replicas to write.", Refused),
        ("NOAUTH Authentication required.", Refused),
        ("NOPERM this user has no permissions", Refused),
        ("WRONGPASS invalid username-password pair", Refused),
        ("CLUSTERDOWN Hash slot not served", Refused),
        ("MASTERDOWN Link with MASTER is down", Refused),
        (
            "TRYAGAIN Multiple keys request during rehashing of slot",
            Refused,
        ),
        ("MOVED 3999 127.0.0.1:6381", Refused),
        ("ASK 3999 127.0.0.1:6381", Refused),
        (
            "CROSSSLOT Keys in request don't hash to the same slot",
            Refused,
        ),
        ("NOSCRIPT No matching script.", Refused),
        (
            "ERR Error running script (call to f_1): user_script:1: oops",
            InvalidReply,
        ),
        ("WRONGTYPE Operation against a key", InvalidReply),
        ("SURPRISE something new", InvalidReply),
        ("", InvalidReply),
    ];
    for (line, kind) in table {
        let fake = FakeServer::replying(Some(format!("-{line}\r\n").into_bytes())).await;
        let store = long_timeout_store(fake.url()).await;
        let limit = numbered_limit(1, slow_bucket(10));
        let error = decide_one(&store, "alice", &limit, Op::Spend(1))
            .await
            .unwrap_err();
        assert_eq!(error.kind(), kind, "{line}: {error}");
        assert!(!error.to_string().contains("127.0.0.1"), "{error}");
        // An unknown script is sent once; nothing else is sent a second time.
        let calls = if line.starts_with("NOSCRIPT") { 2 } else { 1 };
        assert_eq!(fake.calls.load(Ordering::SeqCst), calls, "{line}");
    }
}

#[tokio::test]
async fn s_10_replies_of_other_scripts_are_invalid() {
    let replies: [&[u8]; 14] = [
        b"$-1\r\n",
        b"*-1\r\n",
        b":7\r\n",
        b"+OK\r\n",
        b"*0\r\n",
        b"$3\r\nabc\r\n",
        b"*2\r\n:1\r\n:2\r\n",
        b"*6\r\n:1\r\n:0\r\n:1\r\n:0\r\n:0\r\n$1\r\n0\r\n",
        b"*6\r\n:1\r\n:0\r\n:1\r\n:0\r\n:0\r\n*1\r\n:0\r\n",
        b"*6\r\n:-1\r\n:0\r\n:1\r\n:0\r\n:0\r\n:0\r\n",
        b"*6\r\n:1\r\n:0\r\n:1\r\n:0\r\n:9223372036854775807\r\n:0\r\n",
        b"*6\r\n:1\r\n:0\r\n:1\r\n:0\r\n:0\r\n:1000000000\r\n",
        // Admits what core denies: a bucket with a debt of a day.
        b"*6\r\n:1\r\n:0\r\n:1\r\n:0\r\n:999999\r\n:0\r\n",
        b"*7\r\n:1\r\n:0\r\n:1\r\n:0\r\n:0\r\n:0\r\n:0\r\n",
    ];
    for reply in replies {
        let fake = FakeServer::replying(Some(reply.to_vec())).await;
        let store = long_timeout_store(fake.url()).await;
        let limit = numbered_limit(1, slow_bucket(1));
        let error = decide_one(&store, "alice", &limit, Op::Spend(1))
            .await
            .unwrap_err();
        let text = String::from_utf8_lossy(reply);
        assert_eq!(
            error.kind(),
            StoreErrorKind::InvalidReply,
            "{text:?}: {error}"
        );
        assert!(error.may_have_charged());
    }
    let well = b"*6\r\n:1\r\n:0\r\n:1\r\n:0\r\n:0\r\n:0\r\n".to_vec();
    let fake = FakeServer::replying(Some(well)).await;
    let store = long_timeout_store(fake.url()).await;
    let limit = numbered_limit(1, slow_bucket(1));
    assert!(
        decide_one(&store, "alice", &limit, Op::Spend(1))
            .await
            .is_ok()
    );
}

/// Any number of any integers gives a reply or an error.
#[test]
fn s_10_no_integers_make_the_decoder_panic() {
    let window = FixedWindow::builder(5, Window::Epoch(Nanos::HOUR))
        .build()
        .unwrap();
    let limits: [(IdentifiedLimit, Op); 6] = [
        (numbered_limit(1, slow_bucket(5)), Op::Spend(1)),
        (numbered_limit(1, window), Op::SpendUpTo(9)),
        (
            numbered_limit(1, SlidingCounter::builder(5, Nanos::HOUR).build().unwrap()),
            Op::ChargeAlways(2),
        ),
        (
            numbered_limit(1, SlidingLog::builder(5, Nanos::HOUR).build().unwrap()),
            Op::Spend(3),
        ),
        (
            numbered_limit(1, Concurrency::new(5, Nanos::HOUR).unwrap()),
            Op::Acquire {
                id: LeaseId(1),
                weight: 2,
            },
        ),
        (
            numbered_limit(1, slow_bucket(5)),
            Op::SettleReserved {
                id: ReservationId(1),
                actual: 3,
            },
        ),
    ];
    let mut rng = TestRng::new(4);
    let mut answered = 0;
    for _ in 0..200_000 {
        let (limit, op) = rng.one_of(&limits);
        let check = QuotaCheck {
            key: StoreKey::new(b"alice").unwrap(),
            limit: &limit,
            op,
        };
        let reply: Vec<i64> = (0..rng.below(24))
            .map(|_| match rng.below(6) {
                0 => rng.next().cast_signed(),
                1 => rng.wide().cast_signed(),
                2 => rng.below(2_000_000_000).cast_signed(),
                _ => rng.below(3).cast_signed(),
            })
            .collect();
        answered += u64::from(decode(&[check], &reply, &mut [BLANK]).is_ok());
    }
    assert!(answered > 0, "some of them are possible");
}
