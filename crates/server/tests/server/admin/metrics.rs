//! Metrics count what happened, every scraper can parse them, and their number is bounded.

use std::sync::Arc;

use tollgate_core::{Nanos, Timestamp};
use tollgate_server::admin::AdminTokens;
use tollgate_server::grpc::GrpcServer;
use tollgate_server::resp::Pipeline;
use tollgate_server::{DegradationCause, HttpApi, HttpLimits};
use tollgate_store::ManualClock;

use super::exposition_format::{Exposition, ExpositionFormat, read};
use super::{TestAdmin, serve_admin, serve_admin_of};
use crate::harness::{policy, ready_now, serve_app};

const POLICY: &str = r#"
deny: [{ match: { header.x-banned: present } }]
limits:
  - { name: api, key: header.x-api-key, rate: 5/h, candidate: { rate: 3/h } }
  - { name: trial, key: header.x-api-key, rate: 4/h, mode: shadow }
"#;

async fn scraped(admin: &TestAdmin) -> Exposition {
    let answer = admin.get("/metrics").await;
    assert_eq!(answer.status, 200);
    let kind = answer.field("content-type");
    assert_eq!(kind, Some("text/plain; version=0.0.4; charset=utf-8"));
    read(&answer.body, ExpositionFormat::Prometheus).unwrap_or_else(|why| panic!("{why}"))
}

fn feed(admin: &TestAdmin, commands: &str) -> String {
    let mut input = commands.as_bytes().to_vec();
    let mut out = Vec::new();
    let fed = admin.resp.feed(
        &mut admin.resp.session(None),
        &mut input,
        &mut Pipeline::new(),
        &mut out,
    );
    assert_eq!(fed.consumed, input.len());
    String::from_utf8(out).unwrap()
}

#[tokio::test]
async fn the_decisions_of_each_limit_are_counted_under_its_name() {
    let admin = serve_admin(POLICY).await;
    let admitted = (0..7).filter(|_| admin.check("a")).count();
    assert_eq!(admitted, 5);
    let page = scraped(&admin).await;
    for (series, value) in [
        (
            r#"limit_decisions_total{limit="api",outcome="allowed"}"#,
            "5",
        ),
        (
            r#"limit_decisions_total{limit="api",outcome="denied"}"#,
            "2",
        ),
        (
            r#"limit_decisions_total{limit="api",outcome="would_deny"}"#,
            "0",
        ),
        (
            r#"limit_decisions_total{limit="trial",outcome="allowed"}"#,
            "4",
        ),
        (
            r#"limit_decisions_total{limit="trial",outcome="would_deny"}"#,
            "1",
        ),
        (
            r#"limit_decisions_total{limit="trial",outcome="denied"}"#,
            "0",
        ),
        // Of five the fourth leaves one and the fifth none; a fifth of five is one.
        (r#"limit_near_total{limit="api"}"#, "2"),
        (r#"candidate_compared_total{limit="api"}"#, "7"),
        (
            r#"candidate_diverged_total{limit="api",direction="would_deny"}"#,
            "2",
        ),
        (
            r#"candidate_diverged_total{limit="api",direction="would_allow"}"#,
            "0",
        ),
        (r#"requests_total{transport="resp",outcome="allowed"}"#, "5"),
        (r#"requests_total{transport="resp",outcome="denied"}"#, "2"),
        (r#"refusals_total{reason="rate"}"#, "2"),
        (r#"request_duration_seconds_count{transport="resp"}"#, "7"),
        (r#"degraded{cause="store"}"#, "0"),
        ("policy_generation", "1"),
        ("policy_valid", "1"),
    ] {
        assert_eq!(page.value(&format!("tollgate_{series}")), value, "{series}");
    }
}

#[tokio::test]
async fn both_formats_have_the_same_values() {
    let admin = serve_admin(POLICY).await;
    admin.check("a");
    admin.app.metrics().record_degradation(
        DegradationCause::Saturation,
        Timestamp::from_secs(1_700_000_000),
    );
    let mut scraper = admin.operator().await;
    let accept = [(
        "accept",
        "application/openmetrics-text;version=1.0.0,text/plain;q=0.5",
    )];
    let open = scraper.request("GET", "/metrics", &accept, "").await;
    let kind = open.field("content-type");
    assert_eq!(
        kind,
        Some("application/openmetrics-text; version=1.0.0; charset=utf-8")
    );
    let open =
        read(&open.body, ExpositionFormat::OpenMetrics).unwrap_or_else(|why| panic!("{why}"));
    let plain = scraped(&admin).await;
    assert_eq!(
        open.samples.keys().collect::<Vec<_>>(),
        plain.samples.keys().collect::<Vec<_>>()
    );
    // Ignore what the process and the admin listener add meanwhile.
    let is_ours =
        |series: &&String| !series.starts_with("process_") && !series.contains("\"admin\"");
    for series in open.samples.keys().filter(is_ours) {
        assert_eq!(open.value(series), plain.value(series), "{series}");
    }
    assert_eq!(plain.value(r#"tollgate_degraded{cause="saturation"}"#), "1");
    assert_eq!(plain.value(r#"tollgate_build_info{version="0.1.0"}"#), "1");
    admin.clock.advance(Nanos::from_secs(10));
    let later = scraped(&admin).await;
    assert_eq!(later.value(r#"tollgate_degraded{cause="saturation"}"#), "0");
}

#[tokio::test]
async fn commands_of_redis_clients_are_counted_by_outcome() {
    let admin = serve_admin(POLICY).await;
    feed(
        &admin,
        "CL.THROTTLE a 0 1 60\r\nCL.THROTTLE a 0 1 60\r\nTHROTTLE a 2 1 60\r\nGCRA a x 1 60\r\nPING\r\n\
         TG.CHECK PEEK header.x-api-key a\r\nTG.CHECK weather fine\r\nTG.CHECK header.x-banned yes\r\n",
    );
    let page = scraped(&admin).await;
    for (series, value) in [
        (
            r#"throttle_commands_total{command="CL.THROTTLE",outcome="allowed"}"#,
            "1",
        ),
        (
            r#"throttle_commands_total{command="CL.THROTTLE",outcome="denied"}"#,
            "1",
        ),
        (
            r#"throttle_commands_total{command="THROTTLE",outcome="allowed"}"#,
            "1",
        ),
        (
            r#"throttle_commands_total{command="GCRA",outcome="allowed"}"#,
            "0",
        ),
        (r#"requests_total{transport="resp",outcome="allowed"}"#, "2"),
        (r#"requests_total{transport="resp",outcome="denied"}"#, "2"),
        (r#"requests_total{transport="resp",outcome="looked"}"#, "1"),
        (r#"requests_total{transport="resp",outcome="failed"}"#, "2"),
        (r#"refusals_total{reason="listed"}"#, "1"),
        (r#"request_duration_seconds_count{transport="resp"}"#, "7"),
    ] {
        assert_eq!(page.value(&format!("tollgate_{series}")), value, "{series}");
    }
}

#[tokio::test]
async fn http_requests_are_counted_by_outcome() {
    let clock = Arc::new(ManualClock::at(Timestamp::from_secs(1_700_000_000)));
    let app = HttpApi::new(&policy(POLICY), 1_000, Arc::clone(&clock)).unwrap();
    let server = serve_app(app, clock, HttpLimits::default()).await;
    let mut client = server.connect().await;
    let key = r#"{"attributes": {"header.x-api-key": "a"}}"#;
    for _ in 0..4 {
        client.post("/v1/check", key).await;
    }
    client
        .post(
            "/v1/check/batch",
            &format!(r#"{{"requests": [{key}, {key}]}}"#),
        )
        .await;
    client.post("/v1/check", r#"{"weather": "fine"}"#).await;
    client.get("/v1/status?key=a").await;
    client.get("/v1/limits").await;
    let fields = [
        ("x-forwarded-method", "GET"),
        ("x-forwarded-uri", "/"),
        ("x-forwarded-host", "a.example"),
        ("x-forwarded-for", "192.0.2.7"),
        ("x-api-key", "b"),
    ];
    client
        .request_with("GET", "/auth/traefik", &fields, "")
        .await;
    let metrics = server.app.metrics();
    use tollgate_server::{Answered, Transport};
    let answered = |answered| metrics.outcome_count(Transport::Http, answered);
    assert_eq!(answered(Answered::Allowed), 6);
    assert_eq!(answered(Answered::Denied), 1);
    assert_eq!(answered(Answered::Failed), 1);
    assert_eq!(answered(Answered::Peeked), 1);
    server.stop().await;
}

#[tokio::test]
async fn counters_survive_another_policy_where_the_limit_stays() {
    let admin = serve_admin(POLICY).await;
    admin.check("a");
    let other =
        "limits: [{ name: api, key: header.x-api-key, rate: 9/h }, { name: new, rate: 1/s }]";
    admin.app.service().replace(&policy(other)).unwrap();
    admin.check("a");
    let page = scraped(&admin).await;
    let allowed = |limit: &str| {
        let series =
            format!(r#"tollgate_limit_decisions_total{{limit="{limit}",outcome="allowed"}}"#);
        page.samples.get(&series).map(String::as_str)
    };
    assert_eq!(allowed("api"), Some("2"));
    assert_eq!(allowed("new"), Some("1"));
    assert_eq!(allowed("trial"), None, "a removed limit has no series");
    assert_eq!(page.value("tollgate_policy_generation"), "2");
}

#[tokio::test]
async fn operator_changes_are_visible_in_metrics() {
    let admin = serve_admin(POLICY).await;
    let mut operator = admin.operator().await;
    operator
        .put("/v1/switches", r#""limit": "api", "to": "off""#)
        .await;
    operator
        .put("/v1/switches", r#""limit": "*", "to": "shadow""#)
        .await;
    operator.put("/v1/blocks", r#""address": "::1""#).await;
    operator
        .put(
            "/v1/overrides",
            r#""limit": "api", "key": "k", "quota": "1/s""#,
        )
        .await;
    operator.request("PUT", "/v1/switches", &[], "{}").await;
    let page = scraped(&admin).await;
    assert_eq!(page.value(r#"tollgate_switches{halt="off"}"#), "1");
    assert_eq!(page.value(r#"tollgate_switches{halt="shadow"}"#), "1");
    assert_eq!(page.value("tollgate_blocks"), "1");
    assert_eq!(page.value("tollgate_overrides"), "1");
    assert_eq!(
        page.value(r#"tollgate_admin_rejected_total{why="origin"}"#),
        "1"
    );
}

/// I-06: the number of series depends on the policy, not on keys, and is bounded for any policy.
#[tokio::test]
async fn i06_the_number_of_series_does_not_grow_with_keys_and_only_so_far_with_limits() {
    let limits = |count: usize| -> String {
        let one = |n: usize| {
            format!(
                "  - {{ name: limit-{n}, match: {{ header.plan: p{n} }}, key: header.x-api-key, rate: 1/h }}\n"
            )
        };
        format!("limits:\n{}", (0..count).map(one).collect::<String>())
    };
    let admin = serve_admin(&limits(3)).await;
    let before = scraped(&admin).await.samples.len();
    let mut commands = String::new();
    for n in 0..100_000 {
        let plan = n % 700;
        commands += &format!("TG.CHECK header.plan p{plan} header.x-api-key key-{n}\r\n");
        if commands.len() > 8_000 || n == 99_999 {
            feed(&admin, &commands);
            commands.clear();
        }
    }
    assert_eq!(scraped(&admin).await.samples.len(), before);
    admin.app.service().replace(&policy(&limits(700))).unwrap();
    for n in 0..700 {
        feed(
            &admin,
            &format!("TG.CHECK header.plan p{n} header.x-api-key another\r\n"),
        );
    }
    let page = scraped(&admin).await;
    let of_limits = |page: &Exposition| {
        page.samples
            .keys()
            .filter(|series| series.contains("limit="))
            .count()
    };
    assert_eq!(
        of_limits(&page),
        501 * 10,
        "five hundred limits and the others, ten series each"
    );
    let rest = r#"tollgate_limit_decisions_total{limit="other",outcome="allowed"}"#;
    assert_eq!(page.value(rest), "200", "nothing is lost");
    admin
        .app
        .service()
        .replace(&policy(&limits(2_000)))
        .unwrap();
    assert_eq!(of_limits(&scraped(&admin).await), 501 * 10);
}

/// With envoyproxy/ratelimit configuration instead of a policy: rules are counted by name and halted together.
#[tokio::test]
async fn rules_of_envoy_files_are_counted_switched_and_listed() {
    let file = "domain: edge\ndescriptors: [{ key: user, rate_limit: { unit: hour, requests_per_unit: 5 } }]";
    let files = tollgate_envoy::config::load(&[("edge.yaml", file)]).unwrap();
    let clock = Arc::new(ManualClock::at(Timestamp::from_secs(1_700_000_000)));
    let app = HttpApi::from_envoy_policy(files, 1_000, Arc::clone(&clock)).unwrap();
    let admin = serve_admin_of(app, clock, AdminTokens::default()).await;
    let server = GrpcServer::new(Arc::clone(admin.app.envoy()));
    // A RateLimitRequest: the domain, and one descriptor with one entry.
    let message = b"\x0a\x04edge\x12\x0b\x0a\x09\x0a\x04user\x12\x01a";
    let ask = || {
        let mut out = Vec::new();
        ready_now(server.answer_bytes(message, &mut out)).unwrap();
        // The first field is the code: 1 is OK, 2 is over the limit.
        out[..2] == [0x08, 0x01]
    };
    assert_eq!((0..7).filter(|_| ask()).count(), 5);
    let mut operator = admin.operator().await;
    let halt = operator.put("/v1/switches", r#""limit": "*", "to": "shadow""#);
    assert_eq!(halt.await.status, 200);
    assert!(ask(), "in shadow nothing is denied");
    let share = operator.put("/v1/switches", r#""limit": "*", "enforce": "5%""#);
    assert!(share.await.problem().starts_with("enforce: "));
    let on = operator.put("/v1/switches", r#""limit": "*", "to": "on""#);
    assert_eq!(on.await.status, 200);
    assert!(!ask());
    let page = scraped(&admin).await;
    for (series, value) in [
        (
            r#"limit_decisions_total{limit="edge.user/hour",outcome="allowed"}"#,
            "5",
        ),
        (
            r#"limit_decisions_total{limit="edge.user/hour",outcome="denied"}"#,
            "3",
        ),
        (
            r#"limit_decisions_total{limit="edge.user/hour",outcome="would_deny"}"#,
            "1",
        ),
        (r#"requests_total{transport="grpc",outcome="denied"}"#, "3"),
        (r#"request_duration_seconds_count{transport="grpc"}"#, "9"),
    ] {
        assert_eq!(page.value(&format!("tollgate_{series}")), value, "{series}");
    }
    let policy = operator.get("/v1/policy").await.json();
    let rule = policy["rules"][0].as_str().unwrap();
    assert!(rule.contains("user"), "{rule}");
}
