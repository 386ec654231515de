//! S-09, S-10 and S-11: replies that are fragmented, truncated, forged, or errors of every kind, from a real server
//! behind a proxy.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tollgate_store::{Op, StoreErrorKind};
use tollgate_testkit::chaos::{ScenarioOutcome, seed};
use tollgate_testkit::clock::{monotonic, since};
use tollgate_testkit::faults::{CloseMode, DataLimit, Slicer, SwallowMode};
use tollgate_testkit::history::spends_exactly;

use super::load::LoadGenerator;
use super::{BURST, DEADLINE, ProxiedServer, bucket, limit, resident};
use crate::server_time::{LONG_TIMEOUT, decide_one};
use crate::topology::{exclusive, wait_until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s_09_fragmented_and_batched_replies_are_read_and_truncated_ones_may_have_charged() {
    let _exclusive = exclusive().await;
    let proxied = ProxiedServer::start(&[], seed(9));
    let store = Arc::new(proxied.store(LONG_TIMEOUT).await);
    let primed = proxied.prime(&store, "alice").await;
    proxied.proxy.change(|toxics| {
        toxics.back.slices = Some(Slicer {
            bytes: NonZeroUsize::MIN,
            pause: Duration::from_millis(1),
        });
    });
    let stores = [Arc::clone(&store)];
    let load = LoadGenerator::start(&stores, &["alice"; 4], limit(), Duration::from_millis(1));
    load.go_on(12).await;
    // Held back, then released at once.
    proxied.proxy.change(|toxics| {
        toxics.back.slices = None;
        toxics.back.silence = SwallowMode::Held;
    });
    wait_until("all calls wait for a reply", || async {
        proxied.proxy.counters().commands("EVALSHA") >= load.rounds() + 1 + 4
    })
    .await;
    proxied.proxy.heal();
    load.go_on(20).await;
    let history = load.end().await;
    let moved = proxied.state("alice") - primed;
    let spent = spends_exactly(&history, "alice", bucket(), moved).unwrap();

    // The connection ends in the middle of a reply: the store cannot know the result, and the server has charged.
    for ending in [CloseMode::Close, CloseMode::Reset] {
        let connected = proxied.store_with(LONG_TIMEOUT, |options| options.connections = 1);
        let connected = connected.await;
        decide_one(&connected, "alice", &limit(), Op::Spend(0))
            .await
            .unwrap();
        proxied
            .proxy
            .change(|toxics| toxics.back.limit = Some(DataLimit { bytes: 0, ending }));
        let error = decide_one(&connected, "alice", &limit(), Op::Spend(1))
            .await
            .unwrap_err();
        assert!(error.may_have_charged(), "{ending:?}: {error}");
        proxied.proxy.heal();
    }
    let charged = (proxied.state("alice") - primed) / bucket().interval;
    assert_eq!(charged, spent + 2);
    ScenarioOutcome::of("S-09 sliced replies").lost(2).tell();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s_10_forged_replies_are_typed_errors_and_take_no_memory() {
    let _exclusive = exclusive().await;
    let proxied = ProxiedServer::start(&[], seed(10));
    let store = proxied.store(DEADLINE).await;
    let primed = proxied.prime(&store, "alice").await;
    let memory = resident();
    let deep = [b"*1\r\n".repeat(2_000), b":1\r\n".to_vec()].concat();
    let wide = [
        b"*2147483647\r\n".as_slice(),
        b":1\r\n".repeat(50).as_slice(),
    ]
    .concat();
    let forged: [&[u8]; 12] = [
        b"$-1\r\n",
        b"+OK\r\n",
        b":7\r\n",
        b"*6\r\n:1\r\n:0\r\n:1\r\n:0\r\n:99999999999999999\r\n:0\r\n",
        b"*6\r\n:-1\r\n:0\r\n:1\r\n:0\r\n:0\r\n:0\r\n",
        b"*6\r\n:1\r\n:0\r\n:1\r\n:0\r\n:0\r\n*1\r\n:0\r\n",
        b"*6\r\n:1\r\n:99999999999999999999999\r\n:1\r\n:0\r\n:0\r\n:0\r\n",
        b"$1073741824\r\nabc",
        b"*-7\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n",
        &deep,
        &wide,
    ];
    let slow = DEADLINE + super::SLACK;
    for bytes in forged {
        proxied.proxy.replace_replies("EVALSHA", 1, bytes);
        let began = monotonic();
        let error = decide_one(&store, "alice", &limit(), Op::Spend(1))
            .await
            .unwrap_err();
        assert!(since(began) < slow * 2, "{error}");
        let text = String::from_utf8_lossy(bytes.get(..40).unwrap_or(bytes));
        assert!(error.may_have_charged(), "{text}: {error}");
        wait_until("the server is used again", || async {
            decide_one(&store, "alice", &limit(), Op::Spend(0))
                .await
                .is_ok()
        })
        .await;
    }
    let charged = (proxied.state("alice") - primed) / bucket().interval;
    assert_eq!(charged, forged.len() as u64, "each once");
    let grown = resident().saturating_sub(memory) >> 20;
    assert!(grown < 64, "{grown} MiB");
    ScenarioOutcome::of("S-10 forged replies")
        .lost(forged.len() as u64)
        .tell();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s_11_a_server_is_used_again_after_any_error_reply() {
    let _exclusive = exclusive().await;
    let proxied = ProxiedServer::start(&[], seed(11));
    let store = Arc::new(proxied.store(LONG_TIMEOUT).await);
    proxied.prime(&store, "alice").await;
    let lines = [
        ("LOADING Redis is loading", StoreErrorKind::Refused),
        ("READONLY You can't write", StoreErrorKind::Refused),
        ("OOM command not allowed", StoreErrorKind::Refused),
        ("BUSY Redis is busy", StoreErrorKind::Refused),
        ("MISCONF Errors writing", StoreErrorKind::Refused),
        ("NOREPLICAS Not enough", StoreErrorKind::Refused),
        ("NOAUTH Authentication required.", StoreErrorKind::Refused),
        ("CLUSTERDOWN The cluster is down", StoreErrorKind::Refused),
        ("TRYAGAIN Multiple keys", StoreErrorKind::Refused),
        ("MOVED 1 127.0.0.1:1", StoreErrorKind::Refused),
        ("ASK 1 127.0.0.1:1", StoreErrorKind::Refused),
        (
            "MASTERDOWN Link with MASTER is down",
            StoreErrorKind::Refused,
        ),
        ("ERR something else", StoreErrorKind::InvalidReply),
    ];
    for (line, kind) in lines {
        // All concurrent callers get the error, and no task ends because of it.
        proxied.proxy.answer_with_error("EVALSHA", 8, line);
        let mut calls = JoinSet::new();
        for _ in 0..8 {
            let store = Arc::clone(&store);
            calls.spawn(async move { decide_one(&store, "alice", &limit(), Op::Spend(0)).await });
        }
        let mut refused = 0;
        while let Some(asked) = calls.join_next().await {
            if let Err(error) = asked.unwrap() {
                assert!(
                    [kind, StoreErrorKind::Unreachable].contains(&error.kind()),
                    "{line}: {error}"
                );
                refused += u64::from(error.kind() == kind);
            }
        }
        assert!(refused > 0, "{line}");
        proxied.proxy.stop_meddling();
        wait_until("the server is used again", || async {
            decide_one(&store, "alice", &limit(), Op::Spend(0))
                .await
                .is_ok()
        })
        .await;
    }
    let left = decide_one(&store, "alice", &limit(), Op::Spend(0))
        .await
        .unwrap();
    assert_eq!(left.status.remaining, BURST - 1);
    ScenarioOutcome::of("S-11 error replies").tell();
}
