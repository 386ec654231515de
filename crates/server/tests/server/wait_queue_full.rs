//! A full wait queue: no request is added to it, and the failure policy of the limit decides.

use tokio::task::yield_now;
use tokio::time::pause;
use tollgate_core::{Nanos, Timestamp};
use tollgate_server::{HttpApi, HttpLimits};
use tollgate_store::ManualClock;

use std::sync::Arc;

use crate::harness::{HttpClient, HttpReply, TestServer, policy, serve_app};

const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);

/// One request an hour per user, one of whom may wait; the whole server lets one request wait.
async fn crowded(on_store_failure: &str) -> TestServer<ManualClock> {
    let text = format!(
        "limits: [{{ name: slow, key: header.x-user, rate: 1/h, wait: 2h, status: 420, \
         on_store_failure: {on_store_failure} }}]"
    );
    let clock = Arc::new(ManualClock::at(NOW));
    let app = HttpApi::new(&policy(&text), 1_000, Arc::clone(&clock)).unwrap();
    serve_app(app.with_max_waiting(1), clock, HttpLimits::default()).await
}

const ABOUT: [(&str, &str); 4] = [
    ("x-forwarded-method", "GET"),
    ("x-forwarded-uri", "/"),
    ("x-forwarded-host", "h"),
    ("x-forwarded-for", "192.0.2.1"),
];

async fn ask(server: &TestServer<ManualClock>, user: &str) -> HttpReply {
    let fields = [ABOUT.as_slice(), &[("x-user", user)]].concat();
    let mut client = server.connect().await;
    client
        .request_with("GET", "/auth/traefik", &fields, "")
        .await
}

/// Starts a request that is held back and returns its connection.
async fn held(server: &TestServer<ManualClock>, user: &str) -> HttpClient {
    assert_eq!(ask(server, user).await.status, 200, "the first goes on");
    let fields: String = ABOUT
        .iter()
        .map(|(name, value)| format!("{name}: {value}\r\n"))
        .collect();
    let mut client = server.connect().await;
    let head = format!("GET /auth/traefik HTTP/1.1\r\nhost: t\r\nx-user: {user}\r\n{fields}\r\n");
    client.send(&head).await;
    while server.app.saturation().waiting() == 0 {
        yield_now().await;
    }
    client
}

#[tokio::test]
async fn while_the_wait_queue_is_full_each_limit_decides_by_its_failure_policy() {
    for (word, status, reason) in [
        ("open", 200, None),
        ("closed", 503, Some("capacity")),
        ("local", 420, Some("rate")),
    ] {
        let server = crowded(word).await;
        let _held = held(&server, "alice").await;
        assert_eq!(
            ask(&server, "bob").await.status,
            200,
            "who need not wait is not concerned"
        );
        let answer = ask(&server, "bob").await;
        assert_eq!(answer.status, status, "{word}: {answer:?}");
        let is_refused = status != 200;
        let decision = if is_refused { "deny" } else { "allow" };
        assert_eq!(answer.field("x-ratelimit-decision"), Some(decision));
        assert_eq!(answer.field("retry-after"), is_refused.then_some("3600"));
        if is_refused {
            assert_eq!(answer.field("x-ratelimit-reason"), reason);
            let detail = "the request would have to wait, and the wait queue is full";
            assert_eq!(answer.problem(), detail);
        }
        let saturation = server.app.saturation();
        let counted = (saturation.refused(), saturation.let_through());
        assert_eq!(counted, (u64::from(is_refused), u64::from(!is_refused)));
        assert_eq!(saturation.waiting(), 1, "no request was added");
    }
}

#[tokio::test]
async fn nginx_gets_403_while_the_wait_queue_is_full() {
    let server = crowded("closed").await;
    let _held = held(&server, "alice").await;
    let fields = [
        ("x-original-method", "GET"),
        ("x-original-uri", "/"),
        ("x-original-host", "h"),
        ("x-real-ip", "192.0.2.1"),
        ("x-user", "alice"),
    ];
    let mut client = server.connect().await;
    let answer = client.request_with("GET", "/auth/nginx", &fields, "").await;
    assert_eq!(answer.status, 403);
    assert_eq!(answer.field("x-ratelimit-status"), Some("503"));
}

#[tokio::test]
async fn refused_requests_are_not_charged_and_a_disconnect_frees_the_wait_permit() {
    let server = crowded("local").await;
    let first = held(&server, "alice").await;
    assert_eq!(ask(&server, "bob").await.status, 200);
    for _ in 0..5 {
        assert_eq!(ask(&server, "bob").await.status, 420);
    }
    drop(first);
    while server.app.saturation().waiting() > 0 {
        yield_now().await;
    }
    // If any of the five had been charged, nothing would be left for bob in the third hour.
    server.clock.advance(Nanos::from_secs(3_600));
    assert_eq!(ask(&server, "bob").await.status, 200);
}

/// The fast path once ignored delayed responses: it neither kept their wait permits nor noticed that a client disconnected.
#[tokio::test]
async fn requests_sent_during_a_delay_are_answered_afterwards() {
    let text = "limits: [{ name: slow, key: header.x-user, rate: 1/s, wait: 5s }]";
    let clock = Arc::new(ManualClock::at(NOW));
    let app = HttpApi::new(&policy(text), 1_000, Arc::clone(&clock)).unwrap();
    let server = serve_app(app, clock, HttpLimits::default()).await;
    let mut held = held(&server, "alice").await;
    held.send("GET /healthz HTTP/1.1\r\nhost: t\r\n\r\n").await;
    pause();
    assert_eq!(held.read_response(false).await.status, 200);
    let health = held.read_response(false).await;
    assert_eq!((health.status, health.body.as_str()), (200, "ok\n"));
    assert_eq!(server.app.saturation().waiting(), 0);
}

/// Envoy's requests wait in the same queue, over gRPC and as JSON. They were once bounded by streams only.
#[tokio::test]
async fn envoy_requests_wait_in_the_same_queue() {
    for (word, status) in [("open", 200), ("closed", 429), ("local", 429)] {
        let text = format!(
            "limits: [{{ name: slow, key: descriptor.user, rate: 1/h, wait: 2h, on_store_failure: {word} }}]"
        );
        let clock = Arc::new(ManualClock::at(NOW));
        let app = HttpApi::new(&policy(&text), 1_000, Arc::clone(&clock)).unwrap();
        let server = serve_app(app.with_max_waiting(1), clock, HttpLimits::default()).await;
        let message = |user: &str| {
            let entry = format!(r#"{{"key": "user", "value": "{user}"}}"#);
            format!(r#"{{"domain": "d", "descriptors": [{{"entries": [{entry}]}}]}}"#)
        };
        let alice = message("alice");
        assert_eq!(
            server.connect().await.post("/json", &alice).await.status,
            200
        );
        let mut held = server.connect().await;
        let length = alice.len();
        let head = format!("POST /json HTTP/1.1\r\nhost: t\r\ncontent-length: {length}\r\n\r\n");
        held.send(&format!("{head}{alice}")).await;
        while server.app.saturation().waiting() == 0 {
            yield_now().await;
        }
        let bob = message("bob");
        assert_eq!(server.connect().await.post("/json", &bob).await.status, 200);
        for _ in 0..3 {
            let answer = server.connect().await.post("/json", &bob).await;
            assert_eq!(answer.status, status, "{word}: {}", answer.body);
        }
        assert_eq!(server.app.saturation().waiting(), 1, "no request was added");
        // Refused requests were not charged: an hour later one request of bob is admitted.
        server.clock.advance(Nanos::from_secs(3_600));
        assert_eq!(server.connect().await.post("/json", &bob).await.status, 200);
    }
}
