//! `/json` and the other HTTP endpoints with envoyproxy/ratelimit configuration.

use std::sync::Arc;

use serde_json::json;
use tollgate_core::Timestamp;
use tollgate_envoy::EnvoyOptions;
use tollgate_envoy::config::Modes;
use tollgate_server::{HttpApi, HttpLimits};
use tollgate_service::state::InitialState;
use tollgate_store::ManualClock;

use crate::harness::{TestServer, serve_app, serve_policy};

const FILE: &str = "
domain: edge
descriptors:
  - key: remote_address
    rate_limit: { unit: minute, requests_per_unit: 1 }
  - key: plan
    rate_limit: { unlimited: true }
    metadata: { kind: free, list: [1, true, null] }
";

struct Dir(std::path::PathBuf);

impl Drop for Dir {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

/// A directory with two domains.
async fn by_directory(name: &str) -> (TestServer<ManualClock>, Dir) {
    let files = [
        ("edge.yaml", FILE),
        ("other.yaml", "domain: other\ndescriptors: []\n"),
    ];
    by_files(name, &files, EnvoyOptions::default()).await
}

async fn by_files(
    name: &str,
    files: &[(&str, &str)],
    options: EnvoyOptions,
) -> (TestServer<ManualClock>, Dir) {
    let dir = std::env::temp_dir().join(format!("tollgate-json-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let dir = Dir(dir);
    for (name, text) in files {
        std::fs::write(dir.0.join(name), text).unwrap();
    }
    let clock = Arc::new(ManualClock::at(Timestamp::from_secs(1_700_000_000)));
    let state = InitialState::empty(1_000, Arc::clone(&clock)).unwrap();
    let secret = tollgate_server::Secret::random();
    let app = HttpApi::from_file_with_state(&dir.0, state, secret, options).unwrap();
    (serve_app(app, clock, HttpLimits::default()).await, dir)
}

const QUESTION: &str = r#"{"domain": "edge", "descriptors": [
    {"entries": [{"key": "remote_address", "value": "10.0.0.1"}]}, {"entries": [{"key": "plan", "value": "free"}]}]}"#;

#[tokio::test]
async fn json_is_answered_as_envoyproxy_ratelimit_answers_it() {
    let (server, _dir) = by_directory("answers").await;
    let mut client = server.connect().await;
    let answer = client.post("/json", QUESTION).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    let mut body = answer.json();
    let headers = body["responseHeadersToAdd"].take();
    assert_eq!(headers[0]["key"], "ratelimit-policy");
    let limit = json!({ "requestsPerUnit": 1, "unit": "MINUTE" });
    let expected = json!({
        "overallCode": "OK",
        "statuses": [
            { "code": "OK", "currentLimit": limit, "durationUntilReset": "40s" },
            { "code": "OK", "limitRemaining": 4_294_967_295_u32 },
        ],
        "responseHeadersToAdd": null,
    });
    assert_eq!(body, expected);
    let denied = client.post("/json", QUESTION).await;
    assert_eq!(
        (denied.status, &denied.json()["overallCode"]),
        (429, &json!("OVER_LIMIT"))
    );
    assert_eq!(denied.json()["statuses"][0]["code"], "OVER_LIMIT");
    for (wrong, reason) in [
        ("{", "body: EOF"),
        ("{}", "domain: must not be empty"),
        (r#"{"domain": "edge"}"#, "descriptors: must not be empty"),
        (r#"{"domian": "edge"}"#, "body: unknown field"),
    ] {
        let answer = client.post("/json", wrong).await;
        assert_eq!(answer.status, 400);
        let problem = answer.problem();
        assert!(problem.starts_with(reason), "{problem}");
    }
    let get = client.get("/json").await;
    assert_eq!((get.status, get.field("allow")), (405, Some("POST")));
}

/// `MERGE_DOMAIN_CONFIG`, `SHADOW_MODE`, `QUOTA_MODE` and `RESPONSE_DYNAMIC_METADATA` of envoyproxy/ratelimit could not be served.
#[tokio::test]
async fn the_modes_of_envoyproxy_ratelimit_are_served() {
    let more = "domain: edge\ndescriptors:\n  - key: user\n    rate_limit: { unit: minute, requests_per_unit: 3 }\n";
    let files = [("edge.yaml", FILE), ("more.yaml", more)];
    let question = r#"{"domain": "edge", "hitsAddend": 2, "descriptors": [
        {"entries": [{"key": "remote_address", "value": "10.0.0.1"}]}, {"entries": [{"key": "user", "value": "ada"}]}]}"#;
    let options = |shadow_mode, quota_mode| EnvoyOptions {
        merge_domains: true,
        modes: Modes {
            shadow_mode,
            quota_mode,
        },
        dynamic_metadata: quota_mode,
    };
    let mut overall = Vec::new();
    for (name, options) in [
        ("plain", options(false, false)),
        ("shadow", options(true, false)),
        ("quota", options(false, true)),
    ] {
        let (server, _dir) = by_files(name, &files, options).await;
        let mut client = server.connect().await;
        let (first, second) = (
            client.post("/json", question).await,
            client.post("/json", question).await,
        );
        let [first, second] = [first.json(), second.json()];
        let codes = |answer: &serde_json::Value| {
            [0, 1].map(|index| answer["statuses"][index]["code"] == "OVER_LIMIT")
        };
        // Two hits are over the limit of one, and four over that of three. Each descriptor says so in every mode.
        assert_eq!(
            (codes(&first), codes(&second)),
            ([true, false], [true, true])
        );
        overall.push([first["overallCode"].clone(), second["overallCode"].clone()]);
        let metadata = &first["dynamicMetadata"];
        if options.dynamic_metadata {
            let descriptors = [
                json!({ "entries": ["remote_address=10.0.0.1"] }),
                json!({ "entries": ["user=ada"] }),
            ];
            let expected =
                json!({ "domain": "edge", "descriptors": descriptors, "hitsAddend": 2.0 });
            assert_eq!(*metadata, expected);
        } else {
            assert!(metadata.is_null(), "no rule has metadata: {metadata}");
        }
    }
    let (ok, over) = ("OK", "OVER_LIMIT");
    assert_eq!(overall, [[over, over], [ok, ok], [ok, over]]);
}

#[tokio::test]
async fn endpoints_that_files_cannot_answer_do_not_admit() {
    let (server, _dir) = by_directory("others").await;
    for path in [
        "/v1/check?key=a",
        "/v1/limits",
        "/v1/status?key=a",
        "/auth/nginx",
    ] {
        let answer = server.get(path).await;
        assert_eq!(answer.status, 501, "{path}");
        assert!(answer.problem().contains("POST /json"));
    }
    assert_eq!(server.get("/healthcheck").await.body, "OK");
    assert_eq!(server.get("/healthz").await.status, 200);
    let front = server.get("/").await.body;
    let rule = "edge.remote_address: at most 1 in each minute, for each remote_address by itself";
    assert!(front.contains(rule), "{front}");
}

#[tokio::test]
async fn files_are_reloaded_and_an_invalid_one_changes_nothing() {
    let (server, dir) = by_directory("again").await;
    let mut client = server.connect().await;
    let reload = server.app.envoy().reloader().unwrap();
    let other = r#"{"domain": "other", "descriptors": [{"entries": [{"key": "a"}]}]}"#;
    let file = |requests: &str| {
        let rule = format!("{{ unit: hour, requests_per_unit: {requests} }}");
        let text = format!("domain: other\ndescriptors:\n  - key: a\n    rate_limit: {rule}\n");
        std::fs::write(dir.0.join("other.yaml"), text).unwrap();
    };
    assert_eq!(client.post("/json", other).await.status, 200);
    file("1");
    reload.reload_if_changed();
    let statuses = [
        client.post("/json", other).await.status,
        client.post("/json", other).await.status,
    ];
    assert_eq!(statuses, [200, 429]);
    file("many");
    reload.reload_now();
    let error = reload.status().error.unwrap().to_string();
    assert!(error.contains("other.yaml:4:"), "{error}");
    assert_eq!(client.post("/json", other).await.status, 429);
}

#[tokio::test]
async fn a_policy_answers_json_requests_too() {
    let text = "limits: [{ name: per-user, key: descriptor.user, rate: 1/h }]";
    let server = serve_policy(text).await;
    let mut client = server.connect().await;
    let body = r#"{"domain": "d", "descriptors": [{"entries": [{"key": "user", "value": "a"}]}]}"#;
    let answer = client.post("/json", body).await;
    assert_eq!(answer.status, 200);
    let limit = json!({ "requestsPerUnit": 1, "unit": "HOUR", "name": "per-user" });
    assert_eq!(answer.json()["statuses"][0]["currentLimit"], limit);
    assert_eq!(client.post("/json", body).await.status, 429);
    assert_eq!(server.get("/v1/limits").await.status, 200);
}

/// Found by schemathesis: a request with the maximum number of entries and its own limit was refused after it was charged.
#[tokio::test]
async fn the_maximum_number_of_entries_can_have_their_own_limit() {
    let server = serve_policy("limits: [{ name: per-user, key: descriptor.k0, rate: 10/h }]").await;
    let mut client = server.connect().await;
    let body = |domain: &str, count: usize| {
        let entry = |index: usize| json!({ "key": format!("k{index}"), "value": "v" });
        let entries: Vec<_> = (0..count).map(entry).collect();
        let limit = json!({ "requests_per_unit": 1, "unit": "HOUR" });
        let descriptors = [json!({ "entries": entries, "limit": limit })];
        json!({ "domain": domain, "descriptors": descriptors }).to_string()
    };
    // Each domain and each list of entries has its own counter, even if they are the same when joined.
    for (domain, count) in [("a", 16), ("b", 16), ("a", 15), ("ak", 16)] {
        for expected in [200, 429] {
            let answer = client.post("/json", &body(domain, count)).await;
            assert_eq!(answer.status, expected, "{domain} {count}: {}", answer.body);
        }
    }
    let answer = client.post("/json", &body("a", 17)).await;
    assert_eq!(answer.status, 400, "{}", answer.body);
}
