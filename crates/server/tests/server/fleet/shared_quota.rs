//! With the store available: one quota, for all servers and protocols.

use tollgate_server::HttpApi;
use tollgate_store::SystemClock;
use tollgate_testkit::redis::{RedisNode, ServerProgram};

use super::{degraded, send_until_closed, start_server, start_server_of};
use crate::grpc::OK;

const TEN: &str = "limits: [{ name: ten, key: header.x-api-key, rate: 10/h }]";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_servers_share_one_quota_over_every_protocol() {
    let redis = RedisNode::start(ServerProgram::Redis, &[]);
    let (one, other) = (
        start_server(&redis.url(), TEN).await,
        start_server(&redis.url(), TEN).await,
    );
    for left in (6..10).rev() {
        let answer = one.check("alice").await;
        assert_eq!((answer.status, degraded(&answer).len()), (200, 0));
        assert_eq!(
            answer.json()["limits"][0]["remaining"],
            left,
            "{}",
            answer.body
        );
    }
    for left in (3..6).rev() {
        let answer = other.should_rate_limit("alice").await.unwrap();
        assert_eq!((answer.overall, answer.statuses[0].remaining), (OK, left));
    }
    let replies = one
        .send_commands(&["TG.CHECK header.x-api-key alice"; 3])
        .await;
    assert_eq!(replies.matches("allowed\r\n:1").count(), 3, "{replies}");
    assert!(replies.contains("remaining\r\n:0\r\n"), "{replies}");
    for server in [&one, &other] {
        assert_eq!(server.check("alice").await.status, 429);
        let answer = server.should_rate_limit("alice").await.unwrap();
        assert_ne!(answer.overall, OK);
        let replies = server
            .send_commands(&["TG.CHECK header.x-api-key alice"])
            .await;
        assert!(replies.contains("allowed\r\n:0"), "{replies}");
    }
    assert_eq!(
        other.check("bob").await.status,
        200,
        "others are not touched"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn throttle_commands_are_shared_and_never_spend_policy_quota() {
    let redis = RedisNode::start(ServerProgram::Redis, &[]);
    let (one, other) = (
        start_server(&redis.url(), TEN).await,
        start_server(&redis.url(), TEN).await,
    );
    for command in ["CL.THROTTLE", "GCRA"] {
        let call = format!("{command} alice 4 1 3600");
        let first = one.send_commands(&[&call, &call, &call]).await;
        assert_eq!(first.matches("*5\r\n:0\r\n:5\r\n").count(), 3, "{first}");
        let second = other.send_commands(&[&call, &call, &call]).await;
        assert_eq!(second.matches("*5\r\n:0\r\n:5\r\n").count(), 2, "{second}");
    }
    let answer = one.check("alice").await;
    assert_eq!(
        answer.json()["limits"][0]["remaining"],
        9,
        "{}",
        answer.body
    );
    // A key that differs from a policy's key only in the prefix.
    let replies = one
        .send_commands(&["CL.THROTTLE t 0 1 3600", "CL.THROTTLE tt 0 1 3600"])
        .await;
    assert_eq!(replies.matches("*5\r\n:0\r\n").count(), 2, "{replies}");
}

/// The error for a key of 1,024 bytes said that it has 1,025 and that 1,024 are allowed: the server's prefix was counted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_is_too_long_for_the_store_is_refused_with_its_own_length() {
    let redis = RedisNode::start(ServerProgram::Redis, &[]);
    let server = start_server(&redis.url(), TEN).await;
    for command in ["CL.THROTTLE", "THROTTLE", "GCRA"] {
        let call = |len| format!("{command} {} 4 1 3600", "k".repeat(len));
        let replies = server.send_commands(&[&call(1_024), &call(1_023)]).await;
        let error = "-ERR key: it has 1024 bytes, at most 1023 are allowed\r\n";
        let allowed = replies.strip_prefix(error);
        assert!(
            allowed.is_some_and(|reply| reply.starts_with("*5\r\n")),
            "{replies}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pipelined_commands_are_answered_in_order() {
    let redis = RedisNode::start(ServerProgram::Redis, &[]);
    let one = start_server(&redis.url(), TEN).await;
    let mut commands = Vec::new();
    let mut expected = String::new();
    for index in 0..200 {
        commands.push(format!("CL.THROTTLE key{} 9999 1 3600", index % 3));
        let remaining = 10_000 - 1 - index / 3;
        expected += &format!("*5\r\n:0\r\n:10000\r\n:{remaining}\r\n:-1\r\n");
        if index % 7 == 0 {
            commands.push(format!("ECHO after-{index}"));
            let word = format!("after-{index}");
            expected += &format!("${}\r\n{word}\r\n", word.len());
        }
        if index % 11 == 0 {
            commands.push("CL.THROTTLE key many 1 1".to_owned());
            expected += "-Cell error: Store error: Couldn't parse as integer: many\r\n";
        }
    }
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    let replies = one.send_commands(&commands).await;
    // The last number of each reply is the reset time, which depends on the server's clock.
    let without_reset = replies
        .replace("\r\n:-1\r\n:", "\r\n:-1\r\n~")
        .split("\r\n")
        .filter(|line| !line.starts_with('~'))
        .collect::<Vec<_>>()
        .join("\r\n");
    assert_eq!(without_reset, expected);
    let calls = redis.info("total_commands_processed").unwrap();
    assert!(
        calls.parse::<u64>().unwrap() >= 200,
        "each was decided there"
    );
}

/// Found in review: parsing a quoted inline command rewrites it in place. A command that waited for an earlier decision was
/// parsed twice, the second time as garbage.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quoted_command_after_a_decision_is_parsed_once() {
    let redis = RedisNode::start(ServerProgram::Redis, &[]);
    let one = start_server(&redis.url(), TEN).await;
    let replies = one
        .send_commands(&["CL.THROTTLE quoted 9 1 3600", r#"ECHO "a b""#, "PING"])
        .await;
    assert!(replies.ends_with("$3\r\na b\r\n+PONG\r\n"), "{replies}");
    let wrong = "CL.THROTTLE quoted 9 1 3600\r\n\"x\"y\"";
    let replies = send_until_closed(one.resp.address, wrong).await;
    let error = "-ERR Protocol error: unbalanced quotes in request\r\n";
    assert!(replies.ends_with(error), "{replies}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_is_shared_and_its_ticket_can_be_released_by_another_protocol() {
    let redis = RedisNode::start(ServerProgram::Redis, &[]);
    let policy = "limits: [{ name: one, key: header.x-api-key, concurrency: 1 }]";
    let (one, other) = (
        start_server(&redis.url(), policy).await,
        start_server(&redis.url(), policy).await,
    );
    let replies = one
        .send_commands(&["TG.ACQUIRE header.x-api-key alice"])
        .await;
    let (_, ticket) = replies.split_once("ticket\r\n$32\r\n").unwrap();
    let ticket = ticket.trim_end();
    assert_eq!(other.check("alice").await.status, 429, "the lease is held");
    let body = format!(r#"{{"ticket": "{ticket}"}}"#);
    assert_eq!(one.post("/v1/renew", &body).await.json()["held"], true);
    let unknown = other.post("/v1/release", &body).await;
    assert_eq!(
        unknown.status, 404,
        "a ticket is valid only on the server that issued it"
    );
    assert_eq!(one.post("/v1/release", &body).await.json()["settled"], true);
    assert_eq!(
        one.send_commands(&[&format!("TG.RELEASE {ticket}")]).await,
        ":0\r\n"
    );
    let answer = other.post("/v1/acquire", r#"{"key": "alice"}"#).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn estimates_and_settlements_are_shared() {
    let redis = RedisNode::start(ServerProgram::Redis, &[]);
    let (one, other) = (
        start_server(&redis.url(), TEN).await,
        start_server(&redis.url(), TEN).await,
    );
    let reserved = one
        .post("/v1/reserve", r#"{"key": "alice", "cost": 9}"#)
        .await;
    let ticket = reserved.json()["ticket"].as_str().unwrap().to_owned();
    assert_eq!(other.check("alice").await.status, 200);
    assert_eq!(other.check("alice").await.status, 429);
    let body = format!(r#"{{"ticket": "{ticket}", "cost": 2}}"#);
    assert_eq!(one.post("/v1/settle", &body).await.json()["settled"], true);
    let answer = one.check("alice").await;
    assert_eq!(
        answer.json()["limits"][0]["remaining"],
        6,
        "{}",
        answer.body
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reset_on_one_server_applies_to_all_and_metrics_show_the_store() {
    let redis = RedisNode::start(ServerProgram::Redis, &[]);
    let (one, other) = (
        start_server(&redis.url(), TEN).await,
        start_server(&redis.url(), TEN).await,
    );
    for _ in 0..10 {
        assert_eq!(one.check("alice").await.status, 200);
    }
    assert_eq!(one.check("alice").await.status, 429);
    let body = r#"{"limit": "ten", "key": ["alice"], "who": "ada", "why": "she asked"}"#;
    let reset = other.operate("POST", "/v1/resets", body).await;
    assert_eq!(
        (reset.status, reset.json()["found"].as_bool()),
        (200, Some(true))
    );
    assert_eq!(other.check("alice").await.status, 200);
    let page = one.operate("GET", "/metrics", "").await.body;
    for line in [
        "tollgate_store_calls_total{outcome=\"answered\"} 1",
        "tollgate_store_degraded 0\n",
        "tollgate_breaker_state{part=\"0\"} 0\n",
        "tollgate_local_decisions_total 0\n",
    ] {
        assert!(page.contains(line), "{line}{page}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn envoy_files_share_their_counters_too() {
    let redis = RedisNode::start(ServerProgram::Redis, &[]);
    let folder = std::env::temp_dir().join(format!("tollgate-fleet-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = "domain: edge\ndescriptors: [{ key: header.x-api-key, rate_limit: { unit: year, requests_per_unit: 5 } }]";
    std::fs::write(folder.join("edge.yaml"), file).unwrap();
    let open = |secret| HttpApi::from_file(&folder, 1_000, SystemClock::new(), secret).unwrap();
    let (one, other) = (
        start_server_of(&redis.url(), open).await,
        start_server_of(&redis.url(), open).await,
    );
    let mut admitted = 0;
    for _ in 0..4 {
        for server in [&one, &other] {
            let answer = server.should_rate_limit("alice").await.unwrap();
            admitted += usize::from(answer.overall == OK);
        }
    }
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(admitted, 5);
}

/// A charge or a refund on one server changes the key for all. Without the store nothing is changed, on no server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn charges_and_refunds_apply_to_all_servers_or_fail_with_503() {
    let mut redis = RedisNode::start(
        ServerProgram::Redis,
        &["--appendonly", "yes", "--appendfsync", "always"],
    );
    let (one, other) = (
        start_server(&redis.url(), TEN).await,
        start_server(&redis.url(), TEN).await,
    );
    let body = |units: u64| {
        format!(
            r#"{{"limit": "ten", "key": ["alice"], "units": {units}, "who": "ada", "why": "abuse"}}"#
        )
    };
    let charged = one.operate("POST", "/v1/charges", &body(8)).await;
    assert_eq!(charged.json()["remaining"], 2, "{}", charged.body);
    assert_eq!(other.check("alice").await.status, 200);
    assert_eq!(other.check("alice").await.status, 200);
    assert_eq!(one.check("alice").await.status, 429);
    // The server that refunds forgets the denial that it has cached.
    let refunded = one.operate("POST", "/v1/refunds", &body(3)).await;
    assert_eq!(refunded.json()["remaining"], 3, "{}", refunded.body);
    assert_eq!(one.check("alice").await.status, 200);
    redis.kill();
    for path in ["/v1/charges", "/v1/refunds"] {
        let failed = one.operate("POST", path, &body(2)).await;
        assert_eq!(failed.status, 503, "{}", failed.body);
    }
    let audit = one.operate("GET", "/v1/audit", "").await.json();
    assert_eq!(audit["events"].as_array().unwrap().len(), 2);
    redis.restart();
    let peek = r#"{"key": "alice", "peek": true}"#;
    let third = start_server(&redis.url(), TEN).await;
    let looked = third.post("/v1/check", peek).await;
    assert_eq!(
        looked.json()["limits"][0]["remaining"],
        2,
        "{}",
        looked.body
    );
}

/// A denial of a call that does not wait is no denial of calls that do, on the same server and with the denial cached; and
/// it charges nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_do_not_wait_do_not_deny_calls_that_wait() {
    let redis = RedisNode::start(ServerProgram::Redis, &[]);
    let queued = "limits: [{ name: queued, key: header.x-api-key, rate: 1/h, wait: 3h }]";
    let one = start_server(&redis.url(), queued).await;
    let check = async |wait: &str| {
        let body = format!(r#"{{"key": "alice", "wait": "{wait}"}}"#);
        one.post("/v1/check", &body).await
    };
    assert_eq!(check("0s").await.status, 200);
    for _ in 0..3 {
        assert_eq!(check("0s").await.status, 429);
    }
    let hours = |answer: serde_json::Value| answer["wait_ms"].as_u64().unwrap().div_ceil(3_600_000);
    for expected in 1..=3 {
        let answer = check("9h").await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        assert_eq!(hours(answer.json()), expected, "{}", answer.body);
        assert_eq!(check("0s").await.status, 429);
    }
    assert_eq!(check("9h").await.status, 429, "the policy's wait is over");
}
