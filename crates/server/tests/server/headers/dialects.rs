//! Every dialect, byte for byte, on responses to checks and to gateways.

use std::sync::Arc;

use tollgate_http::Dialect;
use tollgate_server::{Dialects, HttpApi, HttpLimits};
use tollgate_store::ManualClock;

use super::NOW;
use crate::harness::{HttpReply, TestServer, policy, serve_app};

/// The first limit has two requests and refills one after half a minute. The second is shared by all clients and has a unit.
const TWO: &str = "
limits:
  - { name: per-key, key: header.x-api-key, rate: 2/m }
  - { name: bytes, rate: 1MB/h, unit: bytes, algorithm: fixed_window }
";

/// The fields of a dialect for the first request, and for the third, which is refused.
type Golden = (
    &'static str,
    &'static [(&'static str, &'static str)],
    &'static [(&'static str, &'static str)],
);

const GOLDEN: [Golden; 12] = [
    (
        "draft-11",
        &[
            (
                "ratelimit",
                r#""per-key";r=1;t=30;pk, "bytes";r=999999;t=2800"#,
            ),
            (
                "ratelimit-policy",
                r#""per-key";q=2;w=60;pk, "bytes";q=1000000;qu="content-bytes";w=3600"#,
            ),
        ],
        &[
            (
                "ratelimit",
                r#""per-key";r=0;t=30;pk, "bytes";r=999998;t=2800"#,
            ),
            (
                "ratelimit-policy",
                r#""per-key";q=2;w=60;pk, "bytes";q=1000000;qu="content-bytes";w=3600"#,
            ),
            ("retry-after", "30"),
        ],
    ),
    (
        "next",
        &[
            (
                "ratelimit",
                "per-key;a=1;w=30;c=1;pk, bytes;a=999999;w=2800;c=1",
            ),
            (
                "ratelimit-policy",
                r#"per-key;q=2;w=60;pk, bytes;q=1000000;qu="content-bytes";w=3600"#,
            ),
        ],
        &[
            (
                "ratelimit",
                "per-key;a=0;w=30;c=1;pk, bytes;a=999998;w=2800;c=1",
            ),
            (
                "ratelimit-policy",
                r#"per-key;q=2;w=60;pk, bytes;q=1000000;qu="content-bytes";w=3600"#,
            ),
            ("retry-after", "30"),
        ],
    ),
    (
        "draft-07",
        &[
            ("ratelimit", "limit=2, remaining=1, reset=30"),
            ("ratelimit-policy", "2;w=60, 1000000;w=3600"),
        ],
        &[
            ("ratelimit", "limit=2, remaining=0, reset=30"),
            ("ratelimit-policy", "2;w=60, 1000000;w=3600"),
            ("retry-after", "30"),
        ],
    ),
    (
        "draft-06",
        &[
            ("ratelimit-limit", "2"),
            ("ratelimit-policy", "2;w=60, 1000000;w=3600"),
            ("ratelimit-remaining", "1"),
            ("ratelimit-reset", "30"),
        ],
        &[
            ("ratelimit-limit", "2"),
            ("ratelimit-policy", "2;w=60, 1000000;w=3600"),
            ("ratelimit-remaining", "0"),
            ("ratelimit-reset", "30"),
            ("retry-after", "30"),
        ],
    ),
    (
        "draft-03",
        &[
            ("ratelimit-limit", "2, 2;w=60, 1000000;w=3600"),
            ("ratelimit-remaining", "1"),
            ("ratelimit-reset", "30"),
        ],
        &[
            ("ratelimit-limit", "2, 2;w=60, 1000000;w=3600"),
            ("ratelimit-remaining", "0"),
            ("ratelimit-reset", "30"),
            ("retry-after", "30"),
        ],
    ),
    (
        "envoy",
        &[
            (
                "x-ratelimit-limit",
                r#"2, 2;w=60;name="per-key", 1000000;w=3600;name="bytes""#,
            ),
            ("x-ratelimit-remaining", "1"),
            ("x-ratelimit-reset", "30"),
        ],
        &[
            ("retry-after", "30"),
            (
                "x-ratelimit-limit",
                r#"2, 2;w=60;name="per-key", 1000000;w=3600;name="bytes""#,
            ),
            ("x-ratelimit-remaining", "0"),
            ("x-ratelimit-reset", "30"),
        ],
    ),
    (
        "x-ratelimit",
        &[
            ("x-ratelimit-limit", "2"),
            ("x-ratelimit-remaining", "1"),
            ("x-ratelimit-reset", "30"),
        ],
        &[
            ("retry-after", "30"),
            ("x-ratelimit-limit", "2"),
            ("x-ratelimit-remaining", "0"),
            ("x-ratelimit-reset", "30"),
        ],
    ),
    (
        "x-ratelimit-epoch",
        &[
            ("x-ratelimit-limit", "2"),
            ("x-ratelimit-remaining", "1"),
            ("x-ratelimit-reset", "1700000030"),
        ],
        &[
            ("retry-after", "30"),
            ("x-ratelimit-limit", "2"),
            ("x-ratelimit-remaining", "0"),
            ("x-ratelimit-reset", "1700000030"),
        ],
    ),
    (
        "x-ratelimit-epoch-ms",
        &[
            ("x-ratelimit-limit", "2"),
            ("x-ratelimit-remaining", "1"),
            ("x-ratelimit-reset", "1700000030000"),
        ],
        &[
            ("retry-after", "30"),
            ("x-ratelimit-limit", "2"),
            ("x-ratelimit-remaining", "0"),
            ("x-ratelimit-reset", "1700000030000"),
        ],
    ),
    (
        "discord",
        &[
            ("x-ratelimit-bucket", "cb1f0a20ea45eb72"),
            ("x-ratelimit-limit", "2"),
            ("x-ratelimit-remaining", "1"),
            ("x-ratelimit-reset", "1700000030.000"),
            ("x-ratelimit-reset-after", "30.000"),
        ],
        &[
            ("retry-after", "30"),
            ("x-ratelimit-bucket", "cb1f0a20ea45eb72"),
            ("x-ratelimit-global", "true"),
            ("x-ratelimit-limit", "2"),
            ("x-ratelimit-remaining", "0"),
            ("x-ratelimit-reset", "1700000030.000"),
            ("x-ratelimit-reset-after", "30.000"),
            ("x-ratelimit-scope", "global"),
        ],
    ),
    (
        "github",
        &[
            ("x-ratelimit-limit", "2"),
            ("x-ratelimit-remaining", "1"),
            ("x-ratelimit-reset", "1700000030"),
            ("x-ratelimit-resource", "per-key"),
            ("x-ratelimit-used", "1"),
        ],
        &[
            ("retry-after", "30"),
            ("x-ratelimit-limit", "2"),
            ("x-ratelimit-remaining", "0"),
            ("x-ratelimit-reset", "1700000030"),
            ("x-ratelimit-resource", "per-key"),
            ("x-ratelimit-used", "2"),
        ],
    ),
    ("none", &[], &[("retry-after", "30")]),
];

async fn speaking(text: &str, dialects: &str) -> TestServer<ManualClock> {
    let clock = Arc::new(ManualClock::at(NOW));
    let app = HttpApi::new(&policy(text), 1_000, Arc::clone(&clock)).unwrap();
    let app = app.with_dialects(dialects.parse::<Dialects>().unwrap());
    serve_app(app, clock, HttpLimits::default()).await
}

/// The rate limit fields, without values that depend on the secret of the process.
fn about_limits(answer: &HttpReply) -> Vec<(String, String)> {
    let is_about = |name: &str| name.contains("ratelimit") || name == "retry-after";
    let mut fields: Vec<(String, String)> = answer
        .fields()
        .filter(|(name, _)| is_about(name))
        .map(|(name, value)| (name.to_owned(), without_keys(value)))
        .collect();
    fields.sort();
    fields
}

fn without_keys(value: &str) -> String {
    let mut parts = value.split(";pk=:");
    let first = parts.next().unwrap().to_owned();
    parts.fold(first, |all, part| {
        let (key, rest) = part.split_once(':').unwrap();
        assert_eq!(key.len(), 16, "{value}");
        format!("{all};pk{rest}")
    })
}

fn owned(fields: &[(&str, &str)]) -> Vec<(String, String)> {
    let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    fields.iter().map(own).collect()
}

#[test]
fn every_dialect_is_shown_here() {
    let shown: Vec<&str> = GOLDEN.iter().map(|(name, ..)| *name).collect();
    let mut known: Vec<&str> = Dialect::ALL.iter().map(|one| one.name()).collect();
    known.push("none");
    assert_eq!(shown, known);
}

#[tokio::test]
async fn a_check_is_answered_in_every_dialect() {
    for (dialect, admitted, refused) in GOLDEN {
        let server = speaking(TWO, dialect).await;
        let mut client = server.connect().await;
        let answer = client.get("/v1/check?key=carol").await;
        assert_eq!(
            (answer.status, about_limits(&answer)),
            (200, owned(admitted)),
            "{dialect}"
        );
        assert_eq!(client.get("/v1/check?key=carol").await.status, 200);
        let answer = client.get("/v1/check?key=carol").await;
        assert_eq!(
            (answer.status, about_limits(&answer)),
            (429, owned(refused)),
            "{dialect}"
        );
        assert_eq!(answer.field("cache-control"), Some("no-store"), "{dialect}");
        assert_eq!(answer.json()["violated-policies"][0], "per-key");
    }
}

/// The same fields as for other clients, plus those that only gateways read.
#[tokio::test]
async fn gateways_are_answered_in_every_dialect_admitted_or_not() {
    let asks = [
        ("x-forwarded-method", "GET"),
        ("x-forwarded-uri", "/items"),
        ("x-forwarded-host", "api.example"),
        ("x-forwarded-for", "192.0.2.7"),
        ("x-original-method", "GET"),
        ("x-original-uri", "/items"),
        ("x-original-host", "api.example"),
        ("x-real-ip", "192.0.2.7"),
        ("x-api-key", "carol"),
    ];
    let own = [
        "x-ratelimit-decision",
        "x-ratelimit-status",
        "x-ratelimit-reason",
    ];
    for (dialect, admitted, refused) in GOLDEN {
        for (gateway, statuses) in [("traefik", [200, 429]), ("nginx", [204, 403])] {
            let server = speaking(TWO, dialect).await;
            let mut client = server.connect().await;
            let target = format!("/auth/{gateway}");
            let mut answers = Vec::new();
            for _ in 0..3 {
                answers.push(client.request_with("GET", &target, &asks, "").await);
            }
            for (answer, status, expected) in [
                (&answers[0], statuses[0], admitted),
                (&answers[2], statuses[1], refused),
            ] {
                let mut fields = about_limits(answer);
                fields.retain(|(name, _)| !own.contains(&name.as_str()));
                assert_eq!(
                    (answer.status, fields),
                    (status, owned(expected)),
                    "{gateway} {dialect}"
                );
                assert_eq!(answer.field("cache-control"), Some("no-store"));
            }
        }
    }
}

#[tokio::test]
async fn several_dialects_are_sent_together() {
    let server = speaking(TWO, "github,draft-03,draft-11").await;
    let answer = server.get("/v1/check?key=carol").await;
    let names: Vec<String> = about_limits(&answer)
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    let expected = [
        "ratelimit",
        "ratelimit-limit",
        "ratelimit-policy",
        "ratelimit-remaining",
        "ratelimit-reset",
        "x-ratelimit-limit",
        "x-ratelimit-remaining",
        "x-ratelimit-reset",
        "x-ratelimit-resource",
        "x-ratelimit-used",
    ];
    assert_eq!(names, expected);
}

/// A status request gets the fields without `Retry-After`.
#[tokio::test]
async fn a_status_request_has_the_fields_and_no_retry_after() {
    let server = speaking(TWO, "x-ratelimit").await;
    let mut client = server.connect().await;
    assert_eq!(client.get("/v1/check?key=carol&cost=2").await.status, 200);
    let status = client.get("/v1/status?key=carol").await;
    let fields = owned(&[
        ("x-ratelimit-limit", "2"),
        ("x-ratelimit-remaining", "0"),
        ("x-ratelimit-reset", "30"),
    ]);
    assert_eq!((status.status, about_limits(&status)), (200, fields));
}
