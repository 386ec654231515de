//! Bugs that were reported for other rate limiters, as tests with server processes.

use std::time::Duration;

use tollgate_testkit::history::times_to_live;
use tollgate_testkit::redis::{RedisCluster, RedisNode, ServerProgram, until};

use super::client::Client;
use super::{LONG_DEADLINE, Server, TestFleet, run_exclusively};

/// "All keys of one script must be in one slot": with `colocate`, the limits of a user share a hash tag and one call.
#[test]
fn colocated_limits_of_a_user_share_a_slot_and_one_call() {
    const POLICY: &str = "
limits:
  - { name: second, key: header.x-api-key, rate: 100/s, colocate: header.x-api-key, match: { method: GET } }
  - { name: hour, key: header.x-api-key, rate: 1000/h, colocate: header.x-api-key, match: { method: GET } }
  - { name: by-route, key: [header.x-api-key, method], rate: 500/h, colocate: header.x-api-key, match: { method: GET } }
";
    let _exclusive = run_exclusively();
    let cluster = RedisCluster::start_with(ServerProgram::Redis, 1_000, 0);
    let server = Server::start(&cluster.url(), 1, POLICY, &[LONG_DEADLINE]);
    let mut client = Client::new(server.http);
    for number in 0..30 {
        let body =
            format!(r#"{{"attributes": {{"header.x-api-key": "user{number}", "method": "GET"}}}}"#);
        let answer = client.post("/v1/check", &body).unwrap();
        assert!(answer.status == 200 && !answer.is_degraded(), "{answer:?}");
        assert_eq!(answer.body["limits"].as_array().unwrap().len(), 3);
    }
    let mut slots = 0;
    let mut names = 0;
    for node in &cluster.nodes {
        let mut here: Vec<String> = Vec::new();
        for name in node.ask(&["KEYS", "tg2:*"]).lines() {
            names += 1;
            here.push(node.ask(&["CLUSTER", "KEYSLOT", name]));
        }
        here.sort();
        here.dedup();
        slots += here.len();
        assert_eq!(node.info("errorstat_CROSSSLOT"), None);
    }
    assert!(slots <= 30, "{slots} slots for 30 users");
    // The state of the limit per second may have expired.
    assert!((60..=90).contains(&names), "{names}");
    let calls = server.metric("tollgate_store_calls_total");
    // The watchdog's request is no GET, so it matches no limit and adds no call.
    assert!(
        (calls - 30.0).abs() < 0.5,
        "one call for each request: {calls}"
    );
}

/// "The reset wobbled by a second": it was computed from two clocks. Tollgate computes it from the state in Redis, so all
/// servers report the same reset during one window.
#[test]
fn i12_a_reset_never_wobbles_across_the_boundary_of_a_second() {
    const POLICY: &str = "
limits: [{ name: window, key: header.x-api-key, rate: 1000/day, algorithm: fixed_window }]
";
    let _exclusive = run_exclusively();
    let fleet = TestFleet::start_with_policy(
        POLICY,
        2,
        &[LONG_DEADLINE, "--headers=x-ratelimit-epoch"],
        1,
    );
    let mut clients: Vec<Client> = fleet.servers.iter().map(|s| Client::new(s.http)).collect();
    let began = tollgate_testkit::clock::monotonic();
    let mut resets: Vec<String> = Vec::new();
    let mut asked = 0;
    // Long enough for two boundaries of a second.
    until("more than two seconds have passed", || {
        for client in &mut clients {
            let answer = client.check("alice").unwrap();
            assert!(answer.status == 200 && !answer.is_degraded(), "{answer:?}");
            resets.push(answer.field("x-ratelimit-reset").unwrap().to_owned());
            asked += 1;
        }
        tollgate_testkit::clock::since(began) > Duration::from_millis(2_100)
    });
    resets.sort();
    resets.dedup();
    // The day, and so the window, may end during the test.
    assert!(resets.len() <= 2, "{resets:?}");
    if let [first, second] = resets.as_slice() {
        let second: u64 = second.parse().unwrap();
        assert_eq!(second, first.parse::<u64>().unwrap() + 86_400);
    }
    assert!(asked > 50, "{asked}");
}

/// "The bucket was full again too early": the key of a slow bucket expired before the bucket was refilled.
#[test]
fn i15_the_key_of_a_slow_bucket_lives_until_it_is_full() {
    const POLICY: &str = "limits: [{ name: slow, key: header.x-api-key, rate: 10/day }]";
    const DAY: i64 = 86_400_000;
    let _exclusive = run_exclusively();
    let node = RedisNode::start(ServerProgram::Redis, &["--save", "", "--appendonly", "no"]);
    let server = Server::start(&node.url(), 1, POLICY, &[LONG_DEADLINE]);
    let mut client = Client::new(server.http);
    for spent in 1..=10 {
        let answer = client.check("alice").unwrap();
        assert_eq!(answer.status, 200);
        let found = node.times_to_live();
        let states: Vec<&(String, i64)> = found
            .iter()
            .filter(|(name, _)| name.starts_with("tg2:"))
            .collect();
        let [(_, left)] = states.as_slice() else {
            panic!("{states:?}")
        };
        let reset = answer.body["limits"][0]["reset_after_ms"].as_i64().unwrap();
        // The key lives until the reported reset, plus rounding.
        assert!(*left >= reset - 5_000, "{left} of {reset}");
        assert!((DAY / 10 * spent - 60_000..=DAY / 10 * spent + 60_000).contains(left));
        let longest = Duration::from_hours(25);
        times_to_live(&found, longest).unwrap();
    }
    assert_eq!(client.check("alice").unwrap().status, 429);
}
