//! More requests that have to wait than may: nobody is added to the queue, and the limits' failure policy decides.

use tokio::task::yield_now;
use tokio::time::pause;
use tollgate_core::{Nanos, Timestamp};
use tollgate_server::{App, HttpLimits};
use tollgate_store::ManualClock;

use std::sync::Arc;

use crate::harness::{HttpClient, HttpReply, TestServer, policy, serve_app};

const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);

/// One request an hour for each user, of whom one may wait; in the whole server one waits.
async fn crowded(on_store_failure: &str) -> TestServer<ManualClock> {
    let text = format!(
        "limits: [{{ name: slow, key: header.x-user, rate: 1/h, wait: 2h, status: 420, \
         on_store_failure: {on_store_failure} }}]"
    );
    let clock = Arc::new(ManualClock::at(NOW));
    let app = App::new(&policy(&text), 1_000, Arc::clone(&clock)).unwrap();
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

/// A request that is held back. Its connection is all there is of it.
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
async fn while_the_queue_is_full_each_limit_says_what_becomes_of_those_who_would_wait() {
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
            let told = "the request would have to wait, and too many do already";
            assert_eq!(answer.problem(), told);
        }
        let saturation = server.app.saturation();
        let counted = (saturation.refused(), saturation.let_through());
        assert_eq!(counted, (u64::from(is_refused), u64::from(!is_refused)));
        assert_eq!(saturation.waiting(), 1, "nobody was added");
    }
}

#[tokio::test]
async fn nginx_is_told_in_the_one_status_that_it_takes_for_no() {
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
async fn who_was_turned_away_was_not_charged_and_a_place_is_free_when_its_client_has_left() {
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
    // Had any of the five been charged, there would be nothing for bob in the third hour.
    server.clock.advance(Nanos::from_secs(3_600));
    assert_eq!(ask(&server, "bob").await.status, 200);
}

/// The short way of plain requests once forgot whoever waits: neither was their place kept, nor their leaving noticed.
#[tokio::test]
async fn what_a_client_sends_while_it_is_held_back_is_answered_afterwards() {
    let text = "limits: [{ name: slow, key: header.x-user, rate: 1/s, wait: 5s }]";
    let clock = Arc::new(ManualClock::at(NOW));
    let app = App::new(&policy(text), 1_000, Arc::clone(&clock)).unwrap();
    let server = serve_app(app, clock, HttpLimits::default()).await;
    let mut held = held(&server, "alice").await;
    held.send("GET /healthz HTTP/1.1\r\nhost: t\r\n\r\n").await;
    pause();
    assert_eq!(held.read_response(false).await.status, 200);
    let health = held.read_response(false).await;
    assert_eq!((health.status, health.body.as_str()), (200, "ok\n"));
    assert_eq!(server.app.saturation().waiting(), 0);
}

/// Envoy's questions wait in the same queue, by gRPC and as JSON: they once were bounded by streams alone.
#[tokio::test]
async fn envoys_questions_are_held_back_in_the_same_queue() {
    for (word, status) in [("open", 200), ("closed", 429), ("local", 429)] {
        let text = format!(
            "limits: [{{ name: slow, key: descriptor.user, rate: 1/h, wait: 2h, on_store_failure: {word} }}]"
        );
        let clock = Arc::new(ManualClock::at(NOW));
        let app = App::new(&policy(&text), 1_000, Arc::clone(&clock)).unwrap();
        let server = serve_app(app.with_max_waiting(1), clock, HttpLimits::default()).await;
        let question = |user: &str| {
            let entry = format!(r#"{{"key": "user", "value": "{user}"}}"#);
            format!(r#"{{"domain": "d", "descriptors": [{{"entries": [{entry}]}}]}}"#)
        };
        let alice = question("alice");
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
        let bob = question("bob");
        assert_eq!(server.connect().await.post("/json", &bob).await.status, 200);
        for _ in 0..3 {
            let answer = server.connect().await.post("/json", &bob).await;
            assert_eq!(answer.status, status, "{word}: {}", answer.body);
        }
        assert_eq!(server.app.saturation().waiting(), 1, "nobody was added");
        // Nobody was charged who was turned away: an hour later there is one for bob.
        server.clock.advance(Nanos::from_secs(3_600));
        assert_eq!(server.connect().await.post("/json", &bob).await.status, 200);
    }
}
