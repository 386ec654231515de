//! Attackers must not keep operators out: neither with wrong tokens nor with slow connections.

use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tollgate_server::admin::AdminTokens;

use super::{OPERATE, READ, TestAdmin, serve_admin_with_tokens};

const POLICY: &str = "limits: [{ name: api, key: header.x-api-key, rate: 2/h }]";
const HALT: &str = r#""limit": "*", "to": "off""#;
const WRONG: &str = "guess-0123456789abcdef";

/// Far above any duration here; only a hang reaches it.
const DEADLINE: Duration = Duration::from_secs(30);

async fn serve() -> TestAdmin {
    serve_admin_with_tokens(POLICY, AdminTokens::new(Some(READ), Some(OPERATE)).unwrap()).await
}

/// Health, metrics and the kill switch, each on a new connection.
async fn assert_operators_get_in(admin: &TestAdmin) {
    assert_eq!(admin.get("/healthz").await.status, 200);
    assert_eq!(admin.get("/readyz").await.status, 200);
    let mut reader = admin.operator().await.with_token(READ);
    assert_eq!(reader.get("/metrics").await.status, 200);
    let mut operator = admin.operator().await.with_token(OPERATE);
    assert_eq!(operator.put("/v1/switches", HALT).await.status, 200);
    assert!(admin.check("a"), "everything is off");
}

/// The value of a sample on the metrics page.
async fn metric(admin: &TestAdmin, series: &str) -> u64 {
    let mut reader = admin.operator().await.with_token(READ);
    let page = reader.get("/metrics").await.body;
    let found = page.lines().find_map(|line| line.strip_prefix(series));
    let found = found.unwrap_or_else(|| panic!("{series} is missing"));
    found.trim().parse().unwrap()
}

/// Ten wrong tokens a second from one address once made the server answer 429 to the right token from that address too.
#[tokio::test]
async fn wrong_tokens_are_slowed_and_the_right_one_from_the_same_address_is_not() {
    let admin = serve().await;
    let mut guesser = admin.operator().await.with_token(WRONG);
    for _ in 0..10 {
        let answer = guesser.get("/v1/state").await;
        assert_eq!(answer.status, 401);
        let challenge = answer.field("www-authenticate").unwrap();
        assert!(challenge.contains("invalid_token"), "{challenge}");
    }
    let slowed = guesser.get("/v1/state");
    tokio::select! {
        biased;
        answer = slowed => panic!("a wrong token was answered first: {answer:?}"),
        () = assert_operators_get_in(&admin) => {}
    }
    // The answer comes, only later.
    let mut guesser = admin.operator().await.with_token(WRONG);
    let answer = timeout(DEADLINE, guesser.get("/v1/state")).await.unwrap();
    assert_eq!(answer.status, 401);
    assert_eq!(
        metric(&admin, r#"tollgate_auth_failures_total{listener="admin"}"#).await,
        12
    );
}

/// Delayed answers hold connections, so their number is bounded. A guesser with more connections is answered at once and has
/// to connect again.
#[tokio::test]
async fn more_wrong_tokens_than_can_be_delayed_end_their_connections() {
    let admin = serve().await;
    let mut guesser = admin.operator().await.with_token(WRONG);
    for _ in 0..10 {
        assert_eq!(guesser.get("/v1/state").await.status, 401);
    }
    let request =
        format!("GET /v1/state HTTP/1.1\r\nhost: test\r\nauthorization: Bearer {WRONG}\r\n\r\n");
    let mut guessers = Vec::new();
    for _ in 0..200 {
        let mut guesser = admin.operator().await;
        guesser.connection.send(&request).await;
        guessers.push(guesser);
    }
    assert_operators_get_in(&admin).await;
    let (mut delayed, mut refused) = (0, 0);
    for guesser in &mut guessers {
        let answer = guesser.connection.read_response(false).await;
        if answer.status == 401 {
            delayed += 1;
            continue;
        }
        refused += 1;
        assert_eq!(answer.status, 429);
        assert_eq!(answer.field("retry-after"), Some("1"));
        assert_eq!(answer.field("connection"), Some("close"));
        assert_eq!(guesser.connection.read_until_closed().await, b"");
    }
    // More than 64 are delayed only if sending all of them took longer than a delay.
    assert!(delayed >= 64 && refused > 0, "{delayed} {refused}");
    assert_operators_get_in(&admin).await;
}

/// 64 slow connections without a token once made health, metrics and the kill switch unreachable.
#[tokio::test]
async fn slow_connections_give_way_to_operators() {
    for (count, bytes) in [
        (64, "GET /metrics HTTP/1.1\r\nhost: te"),
        (1_000, "G"),
        (1_000, ""),
        // A head without the body that it announces.
        (
            600,
            "PUT /v1/switches HTTP/1.1\r\nhost: test\r\ncontent-length: 9\r\n\r\n",
        ),
    ] {
        let admin = serve().await;
        let mut slow = Vec::new();
        for _ in 0..count {
            let mut connection = TcpStream::connect(admin.address).await.unwrap();
            // The server may have closed it for a newer one.
            let _sent = connection.write_all(bytes.as_bytes()).await.is_ok();
            slow.push(connection);
        }
        assert_operators_get_in(&admin).await;
        let evicted = metric(
            &admin,
            r#"tollgate_connections_evicted_total{listener="admin"}"#,
        )
        .await;
        assert_eq!(evicted > 0, count > 256, "{evicted}");
        drop(slow);
    }
}

/// Connections that ask for `/healthz` again and again complete requests, but show no token.
#[tokio::test]
async fn connections_that_only_ask_for_health_give_way_and_operators_do_not() {
    let admin = serve().await;
    let mut operator = admin.operator().await.with_token(OPERATE);
    assert_eq!(operator.get("/v1/state").await.status, 200);
    let mut probes = Vec::new();
    for _ in 0..300 {
        let mut probe = admin.operator().await;
        assert_eq!(probe.get("/healthz").await.status, 200);
        probes.push(probe);
    }
    // The operator's connection is older than all of them.
    assert_eq!(operator.get("/v1/state").await.status, 200);
    assert_operators_get_in(&admin).await;
}
