//! S-14 and S-15: a server without free memory, which refuses or evicts states.

use std::sync::Arc;
use std::time::Duration;

use tollgate_redis::ServerWarningKind;
use tollgate_store::{Op, StoreErrorKind};
use tollgate_testkit::chaos::{ScenarioOutcome, seed};
use tollgate_testkit::history::{Allowance, Bucket, bound, spends, times_to_live};

use super::load::LoadGenerator;
use super::{ProxiedServer, bucket, bucket_of, limit};
use crate::server_time::{LONG_TIMEOUT, decide_one, numbered_limit};
use crate::topology::{exclusive, wait_until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s_14_out_of_memory_is_refused_and_charges_nothing() {
    let _exclusive = exclusive().await;
    let proxied = ProxiedServer::start(&["--maxmemory-policy", "noeviction"], seed(14));
    let store = Arc::new(proxied.store(LONG_TIMEOUT).await);
    let primed = proxied.prime(&store, "alice").await;
    let stores = [Arc::clone(&store)];
    let load = LoadGenerator::start(&stores, &["alice"; 2], limit(), Duration::from_millis(2));
    load.go_on(20).await;
    // Less than an empty server needs.
    proxied.node.tell(&["CONFIG", "SET", "maxmemory", "100kb"]);
    wait_until("it refuses", || async { load.failures() > 20 }).await;
    for key in ["alice", "new client"] {
        let error = decide_one(&store, key, &limit(), Op::Spend(1))
            .await
            .unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Refused, "{error}");
        assert!(error.to_string().contains("OOM"), "{error}");
    }
    proxied.node.tell(&["CONFIG", "SET", "maxmemory", "0"]);
    load.until_answered(20).await;
    let history = load.end().await;
    let spent = spends(&history, "alice", bucket(), proxied.state("alice") - primed).unwrap();
    assert_eq!(
        (spent.units, spent.unheard),
        (spent.heard, 0),
        "a refused call has not charged"
    );
    let worst = bound(&history, &Allowance::of(bucket())).unwrap();
    ScenarioOutcome::of("S-14 out of memory")
        .worst(&worst)
        .tell();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s_15_each_eviction_costs_at_most_a_burst_and_gives_a_warning() {
    const SMALL: u64 = 10;
    let _exclusive = exclusive().await;
    let proxied = ProxiedServer::start(&["--maxmemory-policy", "allkeys-random"], seed(15));
    let store = Arc::new(proxied.store(LONG_TIMEOUT).await);
    let used: u64 = proxied.node.info("used_memory").unwrap().parse().unwrap();
    let most = (used + 300_000).to_string();
    proxied.node.tell(&["CONFIG", "SET", "maxmemory", &most]);
    let found = store.inspect().await;
    assert!(
        found
            .iter()
            .any(|finding| finding.kind == ServerWarningKind::Evicting),
        "{found:?}"
    );
    let names: Vec<String> = (0..20).map(|number| format!("client {number}")).collect();
    let keys: Vec<&str> = names.iter().map(String::as_str).collect();
    let small = numbered_limit(1, bucket_of(SMALL));
    let load = LoadGenerator::start(&[store], &keys, small, Duration::from_millis(1));
    load.go_on(20 * 15).await;
    // Keys of another application evict ours.
    let filler = "x".repeat(2_000);
    let evicted = || -> u64 { proxied.node.info("evicted_keys").unwrap().parse().unwrap() };
    for number in 0..1_000 {
        proxied
            .node
            .tell(&["SET", &format!("other {number}"), &filler, "EX", "600"]);
    }
    load.go_on(20 * 15).await;
    let history = load.end().await;
    assert!(evicted() > 100, "{}", evicted());
    let limit = Bucket::from(&bucket_of(SMALL));
    let within = |times| bound(&history, &Allowance::of(limit).losses(times));
    let worst = within(evicted()).unwrap();
    assert!(within(0).is_err(), "some of the evicted were ours");
    let day = Duration::from_hours(24);
    times_to_live(&proxied.node.times_to_live(), day * 12).unwrap();
    ScenarioOutcome::of("S-15 evicted").worst(&worst).tell();
}
