//! Settlement after admission: leases, estimates and responses.

use serde_json::{Value, json};
use tollgate_core::Nanos;
use tollgate_store::ManualClock;

use crate::harness::{HttpClient, HttpReply, TestServer, serve_policy};

const POLICY: &str = r#"
limits:
  - name: places
    match: { path: /work }
    concurrency: 1
    lease: 60s
  - name: tokens
    match: { path: /chat }
    rate: 1000/h
    cost: { response: x-tokens-used, estimate: 100, at_most: 500 }
  - name: failures
    match: { path: /login }
    rate: 2/h
    count: { responses: [401] }
  - name: plain
    match: { path: /plain }
    rate: 100/h
"#;

struct TicketClient(HttpClient);

impl TicketClient {
    async fn connect(server: &TestServer<ManualClock>) -> Self {
        Self(server.connect().await)
    }

    async fn admitted(&mut self, endpoint: &str, path: &str) -> String {
        let body = json!({ "attributes": { "path": path } }).to_string();
        let answer = self.0.post(endpoint, &body).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        let ticket = answer.json()["ticket"].clone();
        ticket.as_str().expect("a ticket").to_owned()
    }

    async fn report(&mut self, endpoint: &str, body: Value) -> HttpReply {
        self.0.post(endpoint, &body.to_string()).await
    }

    async fn left(&mut self, path: &str) -> u64 {
        let answer = self.0.get(&format!("/v1/status?path={path}")).await.json();
        answer["limits"][0]["remaining"].as_u64().unwrap()
    }
}

#[tokio::test]
async fn a_lease_is_held_renewed_and_released() {
    let server = serve_policy(POLICY).await;
    let mut client = TicketClient::connect(&server).await;
    let ticket = client.admitted("/v1/acquire", "/work").await;
    assert_eq!(client.left("/work").await, 0);
    let full = client.0.get("/v1/check?path=/work").await;
    assert_eq!(
        (full.status, full.json()["reason"].clone()),
        (429, json!("concurrency"))
    );

    server.clock.advance(Nanos::from_secs(50));
    let renewed = client
        .report("/v1/renew", json!({ "ticket": ticket }))
        .await;
    let expected = json!({ "ticket": ticket, "held": true, "expires_after_ms": 600_000 });
    assert_eq!((renewed.status, renewed.json()), (200, expected));
    server.clock.advance(Nanos::from_secs(50));
    assert_eq!(client.left("/work").await, 0, "renewed in time");

    let released = client
        .report("/v1/release", json!({ "ticket": ticket }))
        .await;
    assert_eq!(
        released.json(),
        json!({ "ticket": ticket, "settled": true })
    );
    assert_eq!(client.left("/work").await, 1);
    let again = client
        .report("/v1/release", json!({ "ticket": ticket }))
        .await;
    assert_eq!(
        (again.status, again.json()),
        (200, json!({ "ticket": ticket, "settled": false }))
    );
    let late = client
        .report("/v1/renew", json!({ "ticket": ticket }))
        .await;
    assert_eq!(late.status, 404);
}

#[tokio::test]
async fn a_lease_that_ended_is_not_renewed() {
    let server = serve_policy(POLICY).await;
    let mut client = TicketClient::connect(&server).await;
    let ticket = client.admitted("/v1/acquire", "/work").await;
    server.clock.advance(Nanos::from_secs(60));
    assert_eq!(client.left("/work").await, 1);
    let renewed = client
        .report("/v1/renew", json!({ "ticket": ticket }))
        .await;
    assert_eq!(renewed.json()["held"], false);
}

#[tokio::test]
async fn an_estimate_is_settled_by_the_response() {
    let server = serve_policy(POLICY).await;
    let mut client = TicketClient::connect(&server).await;
    let ticket = client.admitted("/v1/check", "/chat").await;
    assert_eq!(client.left("/chat").await, 900);
    let body = json!({ "ticket": ticket, "status": 200, "headers": { "X-Tokens-Used": "250" } });
    let settled = client.report("/v1/respond", body.clone()).await;
    assert_eq!(settled.json(), json!({ "ticket": ticket, "settled": true }));
    assert_eq!(client.left("/chat").await, 750);
    assert_eq!(
        client.report("/v1/respond", body).await.json()["settled"],
        false
    );
    assert_eq!(
        client.left("/chat").await,
        750,
        "a report that is sent twice counts once"
    );
}

#[tokio::test]
async fn only_the_chosen_responses_are_counted() {
    let server = serve_policy(POLICY).await;
    let mut client = TicketClient::connect(&server).await;
    for (status, left) in [(200, 2), (401, 1), (404, 1), (401, 0)] {
        let ticket = client.admitted("/v1/check", "/login").await;
        client
            .report("/v1/respond", json!({ "ticket": ticket, "status": status }))
            .await;
        assert_eq!(client.left("/login").await, left);
    }
    assert_eq!(client.0.get("/v1/check?path=/login").await.status, 429);
}

#[tokio::test]
async fn a_reservation_is_settled_or_cancelled() {
    let server = serve_policy(POLICY).await;
    let mut client = TicketClient::connect(&server).await;
    let reserve = json!({ "attributes": { "path": "/plain" }, "cost": 50 });
    let reserved = client.report("/v1/reserve", reserve.clone()).await.json();
    assert_eq!(client.left("/plain").await, 50);
    let settle = json!({ "ticket": reserved["ticket"], "cost": 10 });
    assert_eq!(client.report("/v1/settle", settle).await.status, 200);
    assert_eq!(client.left("/plain").await, 90);
    let reserved = client.report("/v1/reserve", reserve).await.json();
    assert_eq!(client.left("/plain").await, 40);
    let cancel = json!({ "ticket": reserved["ticket"] });
    assert_eq!(client.report("/v1/cancel", cancel).await.status, 200);
    assert_eq!(client.left("/plain").await, 90);
}

#[tokio::test]
async fn tickets_expire_and_cannot_be_guessed() {
    let server = serve_policy(POLICY).await;
    let mut client = TicketClient::connect(&server).await;
    let one = client.admitted("/v1/check", "/chat").await;
    let two = client.admitted("/v1/check", "/chat").await;
    assert_ne!(one, two);
    let unknown = json!({ "ticket": "0123456789abcdef0123456789abcdef" });
    let answer = client.report("/v1/cancel", unknown).await;
    let detail = "ticket: \"0123456789abcdef0123456789abcdef\" is not open: it has expired or was never issued";
    assert_eq!((answer.status, answer.problem().as_str()), (404, detail));
    server.clock.advance(Nanos::from_secs(600));
    let late = client.report("/v1/cancel", json!({ "ticket": one })).await;
    assert_eq!(late.status, 404, "what was charged stays charged");
}
