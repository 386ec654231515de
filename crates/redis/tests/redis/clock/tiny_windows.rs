//! S-28: windows of one millisecond, the server's own granularity, with requests at their boundaries.

use std::collections::HashMap;

use tollgate_core::{
    FixedWindow, Nanos, Outcome, Rate, SlidingCounter, SlidingLog, TokenBucket, Window,
};
use tollgate_store::{IdentifiedLimit, Op};
use tollgate_testkit::redis::ServerProgram;

use super::harness::{ClockHarness, needed_until};
use crate::model::Model;
use crate::server_time::{decide_one, numbered_limit};

const MOST: u64 = 3;
const WINDOW: Nanos = Nanos::from_millis(1);

fn limits() -> [IdentifiedLimit; 5] {
    let fixed = |window| FixedWindow::builder(MOST, window).build().unwrap();
    let rate = Rate::new(4, WINDOW);
    [
        numbered_limit(1, fixed(Window::Epoch(WINDOW))),
        numbered_limit(2, fixed(Window::FirstHit(WINDOW))),
        numbered_limit(3, SlidingLog::builder(MOST, WINDOW).build().unwrap()),
        numbered_limit(600, SlidingCounter::builder(MOST, WINDOW).build().unwrap()),
        numbered_limit(
            6_000,
            TokenBucket::builder(rate).burst(MOST).build().unwrap(),
        ),
    ]
}

/// Keys are deleted only when they are read, as on a server that is busy.
fn expire_lazily(harness: &mut ClockHarness) {
    harness.command::<()>(&["DEBUG", "SET-ACTIVE-EXPIRE", "0"]);
}

/// On servers whose clock can be held to the microsecond. Valkey's runs on within a millisecond; the next test covers
/// it.
#[tokio::test]
async fn s_28_no_reset_is_lost_at_the_boundaries_of_windows_of_a_millisecond() {
    for kind in [ServerProgram::Redis, ServerProgram::OldRedis] {
        let mut harness = ClockHarness::start(kind).await;
        expire_lazily(&mut harness);
        // A microsecond before a boundary, on it, one after, and in the middle of each window.
        harness.advance(Nanos::from_micros(1_000 - 457 - 1));
        for limit in limits() {
            let mut alice = Model::default();
            let (mut admitted, windows) = (0, 30);
            for micros in [1, 1, 499, 499].into_iter().cycle().take(4 * windows) {
                for _ in 0..=MOST {
                    let answer = harness
                        .agree(&mut alice, "alice", &limit, Op::Spend(1))
                        .await;
                    admitted += usize::from(answer.outcome.is_admitted());
                    let names = harness.names();
                    assert_eq!(names.len(), 1, "{limit:?}");
                    let fault = harness.lifetime_fault(&names[0], needed_until(&answer));
                    assert_eq!(fault, None, "{limit:?}");
                }
                harness.advance(Nanos::from_micros(micros));
            }
            // Most of the limit's units for that time, so no request was stuck.
            assert!(admitted >= windows * 2, "{admitted} of {limit:?}");
            harness.command::<()>(&["FLUSHALL"]);
        }
    }
}

/// Four concurrent requests on a running clock, so that keys expire between and during decisions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s_28_a_running_clock_admits_no_window_twice_and_leaves_no_key_without_an_end() {
    for kind in [ServerProgram::Redis, ServerProgram::NewValkey] {
        let mut harness = ClockHarness::start(kind).await;
        expire_lazily(&mut harness);
        harness.run();
        let ClockHarness {
            store, connection, ..
        } = &mut harness;
        let limit = numbered_limit(
            1,
            FixedWindow::builder(MOST, Window::Epoch(WINDOW))
                .build()
                .unwrap(),
        );
        let mut per_window = HashMap::new();
        for _ in 0..500 {
            let ask = || decide_one(store, "alice", &limit, Op::Spend(1));
            let (a, b, c, d) = tokio::join!(ask(), ask(), ask(), ask());
            for answer in [a, b, c, d] {
                let answer = answer.unwrap();
                match answer.outcome {
                    Outcome::Allow => {
                        let window = answer.receipt.at.as_nanos() / WINDOW.as_nanos();
                        *per_window.entry(window).or_insert(0) += 1;
                    }
                    Outcome::Deny { retry_after } => assert!(retry_after <= WINDOW),
                    other => panic!("{other:?}"),
                }
            }
            let names: Vec<String> = redis::cmd("KEYS").arg("*").query(connection).unwrap();
            for name in names {
                let left: i64 = redis::cmd("PTTL").arg(name).query(connection).unwrap();
                assert!(left == -2 || (0..=1).contains(&left), "{left}");
            }
        }
        assert!(per_window.values().all(|admitted| *admitted <= MOST));
        assert!(per_window.len() > 100, "{} windows met", per_window.len());
    }
}
