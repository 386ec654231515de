//! Clients that attack the limits through the gateway: many keys, forged addresses, odd keys, one hot key, retries, and
//! requests for what is not theirs (S-32 to S-39).

use std::fmt::Write as _;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::recorder::Recorder;
use super::{DEADLINE, OK, exchange, get, start};

const GATEWAY: &str =
    "gateway: { upstreams: { app: http://UPSTREAM }, routes: [{ upstream: app }] }";

/// Sends requests one behind another on one connection and returns their statuses.
async fn pipeline(address: std::net::SocketAddr, requests: &[String]) -> Vec<String> {
    let client = TcpStream::connect(address).await.unwrap();
    let (mut reader, mut writer) = client.into_split();
    let all = requests.concat();
    let sending = async move {
        let _closed = writer.write_all(all.as_bytes()).await;
        writer
    };
    let reading = async {
        let (mut answer, mut statuses) = (Vec::new(), Vec::new());
        let mut buffer = vec![0; 1 << 16];
        while statuses.len() < requests.len() {
            let len = reader.read(&mut buffer).await.unwrap();
            assert_ne!(len, 0, "the connection is open");
            answer.extend(&buffer[..len]);
            let text = String::from_utf8_lossy(&answer);
            let heads = text.split("HTTP/1.1 ").skip(1);
            statuses = heads
                .filter_map(|head| Some(head.get(..3)?.to_owned()))
                .collect();
        }
        statuses
    };
    let (_writer, statuses) = timeout(DEADLINE, async { tokio::join!(sending, reading) })
        .await
        .expect("all responses");
    statuses
}

fn with_key(key: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: a\r\nX-Key: {key}\r\n\r\n")
}

/// The store of the gateway has room for 1,000 keys. A client that is denied stays denied when others send 3,000.
#[tokio::test]
async fn s_32_a_flood_of_keys_frees_nobody() {
    let recorder = Recorder::start(OK).await;
    let text = format!("limits: [{{ name: by-key, key: header.x-key, rate: 2/h }}]\n{GATEWAY}");
    let gateway = start(&text, recorder.address).await;
    let victim = vec![with_key("victim"); 3];
    let statuses = pipeline(gateway.address, &victim).await;
    assert_eq!(statuses, ["200", "200", "429"]);
    for batch in 0..10 {
        let flood: Vec<_> = (0..300)
            .map(|n| with_key(&format!("{batch}-{n}")))
            .collect();
        pipeline(gateway.address, &flood).await;
    }
    assert_eq!(pipeline(gateway.address, &victim[..1]).await, ["429"]);
    gateway.running.stop().await;
}

/// Nobody is trusted here, so a client has one key whatever it says of itself.
#[tokio::test]
async fn s_33_forged_addresses_make_no_keys() {
    let recorder = Recorder::start(OK).await;
    let text = format!("limits: [{{ name: by-address, key: ip, rate: 1/h }}]\n{GATEWAY}");
    let gateway = start(&text, recorder.address).await;
    let long = "10.0.0.1, ".repeat(900);
    let mut requests = Vec::new();
    for field in [
        "X-Forwarded-For: 203.0.113.1",
        "X-Forwarded-For: 203.0.113.2, 127.0.0.1",
        "X-Forwarded-For: 203.0.113.3\r\nX-Forwarded-For: 203.0.113.4",
        "X-Forwarded-For: [2001:db8::1]:80",
        "X-Forwarded-For: ::ffff:203.0.113.5",
        "X-Forwarded-For: fe80::1%eth0",
        "X-Forwarded-For: garbage",
        "X-Forwarded-For:",
        "x_forwarded_for: 203.0.113.6",
        "Forwarded: for=203.0.113.7",
        "X-Real-IP: 203.0.113.8",
        "True-Client-IP: 203.0.113.9",
        "CF-Connecting-IP: 203.0.113.10",
        &format!("X-Forwarded-For: {long}203.0.113.11"),
    ] {
        requests.push(format!("GET / HTTP/1.1\r\nHost: a\r\n{field}\r\n\r\n"));
    }
    let statuses = pipeline(gateway.address, &requests).await;
    assert_eq!(statuses.iter().filter(|status| *status == "200").count(), 1);
    let request = recorder.only_request();
    assert_eq!(request.field("x-forwarded-for"), Some("127.0.0.1"));
    gateway.running.stop().await;
}

/// A key that is long, empty or no text is limited as any other, and each is a key of its own.
#[tokio::test]
async fn s_34_odd_keys_are_limited_and_never_skipped() {
    let recorder = Recorder::start(OK).await;
    let text = format!(
        "limits: [{{ name: by-key, key: header.x-key, missing: shared, rate: 1/h }}]\n{GATEWAY}"
    );
    let gateway = start(&text, recorder.address).await;
    let long = "k".repeat(8_000);
    let mut requests = Vec::new();
    for key in [
        "",
        "{}",
        "{a}",
        "a_b",
        "a:b",
        "_",
        ":",
        "\u{fc}",
        "\u{80}\u{ff}",
        &long,
        &format!("{long}x"),
        "a b",
        "\"",
        "0",
        "null",
    ] {
        requests.extend([with_key(key), with_key(key)]);
    }
    let statuses = pipeline(gateway.address, &requests).await;
    let expected: Vec<_> = ["200", "429"]
        .into_iter()
        .cycle()
        .take(requests.len())
        .collect();
    assert_eq!(statuses, expected);
    gateway.running.stop().await;
}

/// All clients use one key at the same time: exactly the limit is admitted, and the upstream sees no more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s_35_a_hot_key_is_admitted_exactly_to_its_limit() {
    let recorder = Recorder::start(OK).await;
    let text = format!("limits: [{{ name: hot, rate: 100/d }}]\n{GATEWAY}");
    let gateway = start(&text, recorder.address).await;
    let mut clients = JoinSet::new();
    for _ in 0..16 {
        let address = gateway.address;
        clients.spawn(async move { pipeline(address, &vec![with_key("a"); 60]).await });
    }
    let mut admitted = 0;
    while let Some(statuses) = clients.join_next().await {
        admitted += statuses
            .unwrap()
            .iter()
            .filter(|status| *status == "200")
            .count();
    }
    assert_eq!((admitted, recorder.requests().len()), (100, 100));
    gateway.running.stop().await;
}

/// Clients that ignore `Retry-After` reach no upstream and charge nothing.
#[tokio::test]
async fn s_38_retries_of_denied_requests_cost_no_upstream_anything() {
    let recorder = Recorder::start(OK).await;
    let text = format!("limits: [{{ name: by-key, key: header.x-key, rate: 5/d }}]\n{GATEWAY}");
    let gateway = start(&text, recorder.address).await;
    let statuses = pipeline(gateway.address, &vec![with_key("a"); 500]).await;
    assert_eq!(statuses.iter().filter(|status| *status == "200").count(), 5);
    let requests = recorder.requests();
    assert_eq!(requests.len(), 5);
    assert_eq!(recorder.seen.lock().unwrap().connections, 1);
    let denied = exchange(gateway.address, &get("/", "X-Key: a\r\n")).await;
    assert!(denied.contains("\r\nretry-after: "), "{denied}");
    gateway.running.stop().await;
}

/// The gateway serves no path of its own: what operators use is on another listener. Errors name no upstream.
#[tokio::test]
async fn s_39_operators_endpoints_are_not_behind_the_gateway() {
    let recorder = Recorder::start(OK).await;
    let gateway = start(&format!("limits: none\n{GATEWAY}"), recorder.address).await;
    let mut requests = Vec::new();
    let paths = [
        "/metrics",
        "/v1/limits",
        "/v1/blocks",
        "/v1/kill",
        "/healthz",
        "/readyz",
        "/v1/check",
    ];
    for path in paths {
        for (method, host) in [
            ("GET", "a"),
            ("POST", "127.0.0.1:8088"),
            ("DELETE", "localhost"),
        ] {
            let mut request = String::new();
            write!(request, "{method} {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
            requests.push(request);
        }
    }
    let statuses = pipeline(gateway.address, &requests).await;
    assert!(
        statuses.iter().all(|status| status == "200"),
        "{statuses:?}"
    );
    assert_eq!(
        recorder.requests().len(),
        requests.len(),
        "all went to the upstream"
    );
    gateway.running.stop().await;
    let gone = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = gone.local_addr().unwrap();
    drop(gone);
    let gateway = start(&format!("limits: none\n{GATEWAY}"), address).await;
    let failed = exchange(gateway.address, &get("/", "")).await;
    assert!(failed.starts_with("HTTP/1.1 502"), "{failed}");
    assert!(!failed.contains(&address.port().to_string()), "{failed}");
    gateway.running.stop().await;
}
