//! A policy with several limits: all are reported, one binds, and each has its own refusal.

use serde_json::{Value, json};
use tollgate_core::Nanos;
use tollgate_server::{HttpApi, HttpLimits};
use tollgate_service::reload::ReloadOutcome;
use tollgate_store::ManualClock;

use crate::harness::{policy, serve_app, serve_policy};

const SEVERAL: &str = r#"
deny:
  - match: { header.x-banned: present }
    status: 451
    message: Not from there.
limits:
  - name: everyone
    rate: 1000/s
  - name: per-user
    key: claim.sub
    missing: deny
    rate: [10/s, 100/day]
    status: 420
    message: Enhance your calm.
  - name: trial
    key: claim.sub
    rate: 5/s
    mode: shadow
"#;

fn by(user: &str) -> String {
    json!({ "attributes": { "claim.sub": user } }).to_string()
}

#[tokio::test]
async fn every_limit_is_reported_and_the_tightest_named() {
    let server = serve_policy(SEVERAL).await;
    let mut client = server.connect().await;
    let answer = client.post("/v1/check", &by("anna")).await;
    assert_eq!(answer.status, 200);
    let body = answer.json();
    let names = |field: &str| -> Vec<Value> {
        let limits = body["limits"].as_array().unwrap();
        limits.iter().map(|limit| limit[field].clone()).collect()
    };
    assert_eq!(names("name"), ["everyone", "per-user", "per-user", "trial"]);
    assert_eq!(names("mode"), ["enforce", "enforce", "enforce", "shadow"]);
    assert_eq!(names("remaining"), [999, 9, 99, 4]);
    assert_eq!(body["limit"], "per-user");
    assert_eq!(
        answer.field_without_keys("ratelimit-policy").as_deref(),
        Some(r#""everyone";q=1000;w=1, "per-user";q=10;w=1, "per-user#2";q=100;w=86400"#),
        "limits in shadow mode are not reported"
    );
    assert_eq!(
        answer.field_without_keys("ratelimit").as_deref(),
        Some(r#""everyone";r=999;t=1, "per-user";r=9;t=1, "per-user#2";r=99;t=864"#)
    );
}

#[tokio::test]
async fn a_refusal_has_the_status_and_the_message_of_its_limit() {
    let server = serve_policy(SEVERAL).await;
    let mut client = server.connect().await;
    for _ in 0..10 {
        assert_eq!(client.post("/v1/check", &by("anna")).await.status, 200);
    }
    let denied = client.post("/v1/check", &by("anna")).await;
    assert_eq!(
        (denied.status, denied.problem().as_str()),
        (420, "Enhance your calm.")
    );
    assert_eq!(denied.json()["violated-policies"], json!(["per-user"]));
    assert_eq!(denied.json()["reason"], "rate");
    assert_eq!(denied.field("retry-after"), Some("1"));

    let nobody = client.post("/v1/check", "{}").await;
    assert_eq!(
        (nobody.status, nobody.json()["reason"].clone()),
        (420, json!("missing_key"))
    );
    assert_eq!(nobody.field("retry-after"), None);

    let banned = r#"{"attributes": {"header.x-banned": "1", "claim.sub": "bob"}}"#;
    let banned = client.post("/v1/check", banned).await;
    assert_eq!(
        (banned.status, banned.problem().as_str()),
        (451, "Not from there.")
    );
    assert_eq!(banned.json()["type"], "about:blank");
    assert_eq!(banned.json()["reason"], "listed");
}

#[tokio::test]
async fn what_cannot_be_read_is_refused_with_400_and_the_reason() {
    let limit = "name: login, match: { path: /api/login, host: a.example }, rate: 1/h";
    let server = serve_policy(&format!("limits: [{{ {limit} }}]")).await;
    let shadow = serve_policy(&format!("mode: shadow\nlimits: [{{ {limit} }}]")).await;
    let (mut client, mut unenforced) = (server.connect().await, shadow.connect().await);
    for (path, host, reason) in [
        (
            "/api/login%00",
            "a.example",
            "the path has a control character",
        ),
        (
            "/api/login\u{0}",
            "a.example",
            "the path has a control character",
        ),
        (
            "/api/login%",
            "a.example",
            "a % in the path is not followed by two hexadecimal digits",
        ),
        (
            "/api%c0%aflogin",
            "a.example",
            "the path has an overlong UTF-8 sequence",
        ),
        (
            "/api/login",
            "a.example/",
            "the host is not a host name or an IP address",
        ),
    ] {
        let body = json!({ "attributes": { "path": path, "host": host } }).to_string();
        let answer = client.post("/v1/check", &body).await;
        assert_eq!(answer.status, 400, "{reason}");
        assert_eq!(
            answer.field("Content-Type"),
            Some("application/problem+json")
        );
        assert_eq!(answer.json()["reason"], "unreadable");
        let detail = answer.json()["detail"].as_str().unwrap().to_owned();
        assert_eq!(detail, format!("the request cannot be read: {reason}"));
        // A policy that enforces nothing refuses nothing.
        let answer = unenforced.post("/v1/check", &body).await;
        assert_eq!(answer.status, 200, "{reason}");
    }
}

/// Clients learn which quota was charged: in the body, in header fields and in the counters.
#[tokio::test]
async fn a_request_that_spills_over_names_the_second_quota() {
    let server = serve_policy(
        "limits: [{ name: plan, key: claim.sub, rate: 1/1h, burst: 1, spillover: { rate: 2/20h } }]",
    )
    .await;
    let mut client = server.connect().await;
    for (part, policy, status) in [
        ("main", r#""plan";q=1;"#, 200),
        ("spillover", r#""plan!spillover";q=2;"#, 200),
        ("spillover", r#""plan!spillover";q=2;"#, 200),
        ("main", r#""plan";q=1;"#, 429),
    ] {
        let reply = client.post("/v1/check", &by("anna")).await;
        assert_eq!(reply.status, status);
        let retry_after = (status == 429).then_some("3600");
        assert_eq!(reply.field("retry-after"), retry_after, "the smaller one");
        let body = reply.json();
        assert_eq!(body["limits"][0]["part"], part);
        assert_eq!(body["limits"].as_array().unwrap().len(), 1);
        let sent = reply.field("ratelimit-policy").unwrap_or_default();
        assert!(sent.starts_with(policy), "{sent}");
    }
    let listed = client.get("/v1/limits").await.json();
    let counters = &listed["limits"][0]["counters"];
    assert_eq!(counters["spilled_over"], 2);
    assert_eq!(
        (&counters["allowed"], &counters["denied"]),
        (&json!(3), &json!(1))
    );
}

#[tokio::test]
async fn a_limit_in_shadow_mode_reports_its_decision() {
    let server = serve_policy(SEVERAL).await;
    let mut client = server.connect().await;
    for n in 0..6 {
        let answer = client.post("/v1/check", &by("anna")).await;
        assert_eq!(answer.status, 200);
        let expected = if n < 5 { "allow" } else { "deny" };
        assert_eq!(answer.json()["limits"][3]["outcome"], expected);
    }
    let listed = client.get("/v1/limits").await.json();
    let trial = &listed["limits"][2];
    assert_eq!(trial["name"], "trial");
    assert_eq!(trial["mode"], "shadow: counted, never enforced");
    assert_eq!(trial["counters"]["would_deny"], 1);
    assert_eq!(listed["limits"][1]["counters"]["allowed"], 6);
    let words = trial["quotas"][0]["words"].as_str().unwrap();
    assert!(
        words.starts_with("at most 5 at once, then one every 200 ms"),
        "{words}"
    );
    let refused = &listed["deny"][0];
    assert!(refused.as_str().unwrap().contains("451"), "{refused}");
}

#[tokio::test]
async fn a_batch_is_answered_in_its_order() {
    let server = serve_policy(SEVERAL).await;
    let mut client = server.connect().await;
    let of = |user: &str, cost: u64| json!({ "attributes": { "claim.sub": user }, "cost": cost });
    let body = json!({ "requests": [of("anna", 10), of("anna", 1), of("bob", 1)] });
    let answer = client.post("/v1/check/batch", &body.to_string()).await;
    assert_eq!(answer.status, 200);
    let answers = answer.json()["answers"].clone();
    let allowed = [0, 1, 2].map(|index| answers[index]["allowed"].clone());
    assert_eq!(allowed, [true, false, true]);
    assert_eq!(answers[1]["status"], 420);

    let wrong = json!({ "requests": [of("carol", 10), { "cost": -1 }] });
    assert_eq!(
        client
            .post("/v1/check/batch", &wrong.to_string())
            .await
            .status,
        400
    );
    let whole = of("carol", 10).to_string();
    let answer = client.post("/v1/check", &whole).await;
    assert_eq!(answer.status, 200, "nothing of a wrong batch is charged");
}

#[tokio::test]
async fn a_wait_is_reported_in_milliseconds() {
    let text = "limits: [{ name: paced, rate: 10/s, burst: 1, wait: 300ms }]";
    let server = serve_policy(text).await;
    let mut client = server.connect().await;
    for (wait, status) in [(0, 200), (100, 200), (200, 200), (300, 200), (0, 429)] {
        let answer = client.get("/v1/check").await;
        let body = answer.json();
        assert_eq!((answer.status, &body["wait_ms"]), (status, &json!(wait)));
    }
}

#[tokio::test]
async fn a_changed_file_is_reported_and_an_invalid_one_is_not() {
    let name = format!("tollgate-server-{}.yaml", std::process::id());
    let path = std::env::temp_dir().join(name);
    let write = |text: &str| std::fs::write(&path, text).unwrap();
    write("limits: [{ name: a, rate: 10/h }]");
    let now = tollgate_core::Timestamp::from_secs(1_700_000_000);
    let clock = std::sync::Arc::new(ManualClock::at(now));
    let app = HttpApi::from_file(
        &path,
        1_000,
        std::sync::Arc::clone(&clock),
        tollgate_server::Secret::random(),
    )
    .unwrap();
    let server = serve_app(app, clock, HttpLimits::default()).await;
    let mut client = server.connect().await;
    assert_eq!(
        client.get("/v1/limits").await.json()["limits"][0]["name"],
        "a"
    );

    write("limits: [{ name: b, rate: 10/h }]");
    let reloader = server.app.service().reloader().unwrap();
    assert_eq!(reloader.reload_if_changed(), ReloadOutcome::Reloaded(2));
    let listed = client.get("/v1/limits").await.json();
    assert_eq!(
        (&listed["limits"][0]["name"], &listed["generation"]),
        (&json!("b"), &json!(2))
    );
    assert_eq!(client.get("/v1/check").await.json()["limit"], "b");

    write("limits: [");
    assert_eq!(reloader.reload_if_changed(), ReloadOutcome::Rejected);
    assert_eq!(
        client.get("/v1/limits").await.json()["limits"][0]["name"],
        "b"
    );
    assert_eq!(client.get("/v1/check").await.json()["generation"], 2);
    std::fs::remove_file(&path).unwrap();
    assert!(
        HttpApi::from_file(
            &path,
            1_000,
            ManualClock::at(now),
            tollgate_server::Secret::random()
        )
        .is_err()
    );
}

#[tokio::test]
async fn a_new_policy_applies_and_keeps_states() {
    let server = serve_policy("limits: [{ name: a, key: header.x-api-key, rate: 10/h }]").await;
    let mut client = server.connect().await;
    assert_eq!(client.get("/v1/check?key=x&cost=8").await.status, 200);
    let more = policy("limits: [{ name: a, key: header.x-api-key, rate: 20/h }]");
    assert_eq!(server.app.service().replace(&more), Ok(2));
    let answer = client.get("/v1/check?key=x&cost=0").await.json();
    assert_eq!(answer["generation"], 2);
    assert_eq!(answer["limits"][0]["limit"], 20);
    assert!(
        answer["limits"][0]["remaining"].as_u64() < Some(20),
        "{answer}"
    );
    assert_eq!(client.get("/v1/limits").await.json()["generation"], 2);
    server.clock.advance(Nanos::HOUR);
    assert_eq!(client.get("/v1/check?key=x&cost=20").await.status, 200);
}

/// 33 quotas on one request, or 100 limits of which one applied, answered 503 for ever, although `check` said ok.
#[tokio::test]
async fn many_quotas_are_decided_and_skipped_ones_take_no_room() {
    let together = (0..64).map(|n| format!("  - {{ name: all-{n}, rate: {}/s }}\n", n + 1));
    let server = serve_policy(&format!("limits:\n{}", together.collect::<String>())).await;
    let mut client = server.connect().await;
    let admitted = client.post("/v1/check", "{}").await;
    assert_eq!(admitted.status, 200);
    assert_eq!(admitted.json()["limits"].as_array().unwrap().len(), 64);
    let denied = client.post("/v1/check", "{}").await;
    assert_eq!(
        (denied.status, denied.json()["limit"].clone()),
        (429, json!("all-0"))
    );

    let skipped = (0..100)
        .map(|n| format!("  - {{ name: by-{n}, key: header.h{n}, missing: skip, rate: 1/s }}\n"));
    let server = serve_policy(&format!("limits:\n{}", skipped.collect::<String>())).await;
    let mut client = server.connect().await;
    let request = json!({ "attributes": { "header.h7": "x" } }).to_string();
    assert_eq!(client.post("/v1/check", &request).await.status, 200);
    assert_eq!(client.post("/v1/check", &request).await.status, 429);
}

/// A caller that holds a user cannot wait for long: it shortens the wait of its own calls, and never lengthens it.
#[tokio::test]
async fn a_call_says_how_long_it_waits_at_most() {
    let text = "limits: [{ name: queued, key: header.x-api-key, rate: 1/s, wait: 3s }]";
    let server = serve_policy(text).await;
    let mut client = server.connect().await;
    for (path, wait, status, wait_ms) in [
        ("/v1/check", "0s", 200, json!(0)),
        ("/v1/check", "0s", 429, json!(null)),
        ("/v1/acquire", "0s", 429, json!(null)),
        ("/v1/check", "1s", 200, json!(1_000)),
        ("/v1/check", "1s", 429, json!(null)),
        ("/v1/acquire", "1h", 200, json!(2_000)),
    ] {
        let body = json!({ "key": "alice", "wait": wait }).to_string();
        let answer = client.post(path, &body).await;
        assert_eq!(answer.status, status, "{path} {wait}: {}", answer.body);
        if status == 200 {
            assert_eq!(answer.json()["wait_ms"], wait_ms, "{}", answer.body);
        }
    }
    let denied = client.get("/v1/check?key=alice&wait=2s").await;
    assert_eq!(denied.status, 429, "{}", denied.body);
    let waits = client.get("/v1/check?key=alice").await;
    assert_eq!(waits.json()["wait_ms"], 3_000, "{}", waits.body);
    let unread = client.get("/v1/check?key=alice&wait=soon").await;
    assert_eq!(unread.status, 400);
    assert!(
        unread.problem().starts_with("wait: \"soon\""),
        "{}",
        unread.problem()
    );
    let twice = client.get("/v1/check?key=alice&wait=1s&wait=1s").await;
    assert!(
        twice.problem().ends_with("it is given twice"),
        "{}",
        twice.problem()
    );
}
