//! A real nginx, configured as in `examples/nginx`: which requests it lets through, and the responses that its clients get.

use tollgate_core::Nanos;
use tollgate_store::ManualClock;
use tollgate_testkit::nginx::Nginx;

use crate::harness::{HttpClient, TestServer, serve_policy};

const POLICY: &str = r#"
limits:
  - name: per-address
    key: ip
    rate: 100/h
  - name: per-key
    match: { header.x-api-key: present, method: GET, path: /healthz, host: shop.example, query.page: present }
    key: header.x-api-key
    rate: 2/h
"#;

const EXAMPLE: &str = include_str!("../../../../examples/nginx/nginx.conf");
const PAGE: &str = include_str!("../../../../docs/gateways.md");

/// The example with the addresses of this test. Tollgate itself serves as the upstream.
fn documented(server: &TestServer<ManualClock>) -> String {
    let address = server.address.to_string();
    EXAMPLE
        .replace("127.0.0.1:8080", &address)
        .replace("127.0.0.1:3000", &address)
}

/// Lines of the example that tests add something to.
const LOCATION: &str = "location = /tollgate {";
const INTERNAL: &str = "internal;";

const ASK: [(&str, &str); 2] = [("x-api-key", "carol"), ("connection", "keep-alive")];

async fn get(client: &mut HttpClient, fields: &[(&str, &str)]) -> crate::harness::HttpReply {
    client
        .send(&format!(
            "GET /healthz?page=1 HTTP/1.1\r\nhost: shop.example\r\n{}\r\n",
            fields
                .iter()
                .map(|(name, value)| format!("{name}: {value}\r\n"))
                .collect::<String>()
        ))
        .await;
    client.read_response(false).await
}

#[tokio::test]
async fn requests_go_through_until_the_limit_and_then_clients_see_429() {
    let server = serve_policy(POLICY).await;
    let nginx = Nginx::running(&documented(&server));
    let mut client = HttpClient::to(nginx.address()).await;
    for left in [1, 0] {
        let allowed = get(&mut client, &ASK).await;
        assert_eq!((allowed.status, allowed.body.as_str()), (200, "ok\n"));
        let field = allowed.field("RateLimit").unwrap();
        assert!(
            field.contains(&format!(r#""per-key";r={left};"#)),
            "{field}"
        );
        let policy = allowed.field("RateLimit-Policy").unwrap();
        assert!(policy.contains(r#""per-key";q=2;w=3600"#), "{policy}");
    }
    let denied = get(&mut client, &ASK).await;
    assert_eq!(denied.status, 429);
    assert_eq!(
        denied.field("Content-Type"),
        Some("application/problem+json")
    );
    assert_eq!(denied.field("Retry-After"), Some("1800"));
    assert!(
        denied
            .field("RateLimit")
            .unwrap()
            .contains(r#""per-key";r=0;t=1800"#)
    );
    assert_eq!(denied.json()["status"], 429);
    assert_eq!(denied.json()["detail"], "refused: rate");

    // Another key has another quota, and the client cannot set the gateway's fields.
    let other = [
        ("x-api-key", "dora"),
        ("x-original-uri", "/elsewhere"),
        ("x-real-ip", "203.0.113.9"),
    ];
    let allowed = get(&mut client, &other).await;
    assert_eq!(allowed.status, 200);
    let field = allowed.field("RateLimit").unwrap();
    assert!(
        field.contains(r#""per-address";r=97;"#),
        "one address: {field}"
    );
    assert!(field.contains(r#""per-key";r=1;"#), "{field}");

    server.clock.advance(Nanos::from_secs(1_800));
    assert_eq!(get(&mut client, &ASK).await.status, 200);
}

/// The documentation explains this: nginx turns any other refusal into a 500.
#[tokio::test]
async fn nginx_makes_500_of_a_refusal_that_it_does_not_understand() {
    let server = serve_policy("limits: [{ name: none, rate: 0/h }]").await;
    let wrong = documented(&server)
        .replace("/auth/nginx", "/auth/traefik")
        .replace("X-Original-Method", "X-Forwarded-Method")
        .replace("X-Original-URI", "X-Forwarded-Uri")
        .replace("X-Original-Host", "X-Forwarded-Host")
        .replace("X-Real-IP", "X-Forwarded-For");
    let nginx = Nginx::running(&wrong);
    let mut client = HttpClient::to(nginx.address()).await;
    assert_eq!(get(&mut client, &[]).await.status, 500);
    let nginx = Nginx::running(&documented(&server));
    let mut client = HttpClient::to(nginx.address()).await;
    assert_eq!(get(&mut client, &[]).await.status, 429);
}

#[tokio::test]
async fn a_field_that_nginx_does_not_set_is_noticed() {
    let server = serve_policy(POLICY).await;
    let line = "            proxy_set_header X-Real-IP $remote_addr;\n";
    let settings = documented(&server);
    assert!(settings.contains(line));
    let nginx = Nginx::running(&settings.replace(line, ""));
    let mut client = HttpClient::to(nginx.address()).await;
    assert_eq!(get(&mut client, &ASK).await.status, 500);
}

/// The documentation explains unanswered requests, and why it handles 502 and 504 but not 500.
#[tokio::test]
async fn failing_open_nginx_lets_only_unanswered_requests_through() {
    let (server, upstream) = (serve_policy(POLICY).await, serve_policy(POLICY).await);
    let (catch, answer) = (
        "error_page 502 504 = @unanswered;",
        "location @unanswered { return 204; }",
    );
    assert!(PAGE.contains(catch) && PAGE.contains(answer));
    let closed = documented(&server).replace(
        &format!("proxy_pass http://{};", server.address),
        &format!("proxy_pass http://{};", upstream.address),
    );
    let open = closed
        .replace(INTERNAL, &format!("{INTERNAL} {catch}"))
        .replace(LOCATION, &format!("{answer}\n{LOCATION}"));
    let closed = Nginx::running(&closed);
    let open = Nginx::running(&open);

    // More fields than the server reads: a refusal, even if nginx is configured to fail open.
    let many: Vec<String> = (0..70).map(|index| format!("x-field-{index}")).collect();
    let mut fields: Vec<(&str, &str)> = many.iter().map(|name| (name.as_str(), "1")).collect();
    fields.extend(ASK);
    for nginx in [&closed, &open] {
        let mut client = HttpClient::to(nginx.address()).await;
        assert_eq!(get(&mut client, &fields).await.status, 500);
    }
    for expected in [200, 200, 429] {
        let mut client = HttpClient::to(open.address()).await;
        assert_eq!(get(&mut client, &ASK).await.status, expected);
    }
    server.stop().await;
    for (nginx, expected) in [(&closed, 500), (&open, 200)] {
        let mut client = HttpClient::to(nginx.address()).await;
        assert_eq!(get(&mut client, &ASK).await.status, expected);
    }
}

/// nginx waits for a server that accepts and never answers for the documented time, and not longer.
#[tokio::test]
async fn a_silent_server_times_out_and_counts_as_down() {
    let upstream = serve_policy(POLICY).await;
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let closed = documented(&upstream).replace(
        &format!("http://{}/auth/nginx", upstream.address),
        &format!("http://{}/auth/nginx", silent.local_addr().unwrap()),
    );
    assert!(closed.contains("proxy_read_timeout 1s;"));
    let catch = format!("{INTERNAL} error_page 502 504 = @unanswered;");
    let answer = format!("location @unanswered {{ return 204; }}\n{LOCATION}");
    let open = closed.replace(INTERNAL, &catch).replace(LOCATION, &answer);
    for (settings, expected) in [(closed, 500), (open, 200)] {
        let nginx = Nginx::running(&settings);
        let mut client = HttpClient::to(nginx.address()).await;
        assert_eq!(get(&mut client, &ASK).await.status, expected);
    }
}

/// The limit of the attack on spellings, and one by host.
const LOGIN: &str = r#"
limits:
  - { name: login, match: { route: /api/login }, key: ip, rate: 1/h }
  - { name: host, match: { host: shop.example, path: /other }, key: ip, rate: 1/h }
"#;

/// Spellings of `/api/login` that some server reads as it, or that no server should be asked to read.
const SPELLINGS: [&str; 25] = [
    "/api%2Flogin",
    "/api/login%2f",
    "/api/login;x",
    "/api;x/login",
    "/API/LOGIN",
    "/api/Login",
    "/api\\login",
    "/api%5Clogin",
    "//api/login",
    "/api//login",
    "/./api/login",
    "/a/../api/login",
    "/a/..;/api/login",
    "/a/%2e%2e/api/login",
    "/api/login/",
    "/api/%6Cogin",
    "/api/login?x=1",
    "/api/login%3Bx",
    "/api/login;x%2F..",
    "/api/login%00",
    "/api/login%0A",
    "/api/login%",
    "/api/login%zz",
    "/api%c0%aflogin",
    "/api/login\u{ff}%00",
];

async fn status_of(address: std::net::SocketAddr, target: &str, fields: &str) -> u16 {
    let mut client = HttpClient::to(address).await;
    let request = format!("GET {target} HTTP/1.1\r\nconnection: close\r\n{fields}\r\n");
    client.send(&request).await;
    client.read_response(false).await.status
}

/// 200 of 200 requests with such spellings reached the handler behind the documented nginx, and none was limited. Now each
/// is limited as `/api/login` is, or refused with 400. The upstream has no such page, so a request that escapes gets a 404.
#[tokio::test]
async fn i17_no_spelling_of_a_path_or_a_host_escapes_behind_nginx() {
    let server = serve_policy(LOGIN).await;
    let nginx = Nginx::running(&documented(&server));
    let host = "host: shop.example\r\n";
    let first = status_of(nginx.address(), "/api/login", host).await;
    assert_eq!(first, 404, "the first one is admitted");
    let mut escaped = Vec::new();
    for path in SPELLINGS.iter().cycle().take(200) {
        match status_of(nginx.address(), path, host).await {
            429 | 400 => {}
            status => escaped.push((path, status)),
        }
    }
    assert!(escaped.is_empty(), "{} of 200: {escaped:?}", escaped.len());
    let refused = status_of(nginx.address(), "/api/login%00", host).await;
    assert_eq!(refused, 400, "nginx refuses it by itself");
    let refused = status_of(nginx.address(), "/api/login%0A", host).await;
    assert_eq!(refused, 400, "nginx asks Tollgate");

    assert_eq!(status_of(nginx.address(), "/other", host).await, 404);
    for host in [
        "shop.example.",
        "SHOP.example",
        "shop.example:8443",
        "Shop.Example.:80",
    ] {
        let status = status_of(nginx.address(), "/other", &format!("host: {host}\r\n")).await;
        assert_eq!(status, 429, "{host}");
    }
    // The control: another path and another host are not limited.
    assert_eq!(status_of(nginx.address(), "/api/logins", host).await, 404);
    let other = status_of(nginx.address(), "/other", "host: a.example\r\n").await;
    assert_eq!(other, 404);
}

/// A key that is sent twice was read as the first one, while many servers read the last: every request had a fresh key.
#[tokio::test]
async fn a_key_that_is_sent_twice_is_refused_behind_nginx() {
    let server =
        serve_policy("limits: [{ name: per-key, key: header.x-api-key, rate: 1/h }]").await;
    let nginx = Nginx::running(&documented(&server));
    let status = async |fields: &str| {
        let fields = format!("host: shop.example\r\n{fields}");
        status_of(nginx.address(), "/healthz", &fields).await
    };
    assert_eq!(status("x-api-key: real\r\n").await, 200);
    assert_eq!(status("x-api-key: real\r\n").await, 429);
    for junk in 0..20 {
        let fields = format!("x-api-key: junk-{junk}\r\nx-api-key: real\r\n");
        assert_eq!(status(&fields).await, 400, "{fields}");
    }
    assert_eq!(status("x-api-key: real\r\nx-api-key: real\r\n").await, 429);
    assert_eq!(
        status("x-api-key: other\r\nx-api-key: other\r\n").await,
        200
    );
}

/// The limits of the attack: one that clients choose the key of, and one that they do not.
const TWO_LIMITS: &str = r#"
limits:
  - { name: small, match: { header.x-junk: present }, key: header.x-junk, rate: 1/d }
  - { name: perip, match: { header.x-address: present }, key: header.x-address, rate: 1000/min, when_full: refuse }
"#;

/// The same limits in nginx itself, as slow as its rates can be, in zones that are as small as they can be.
const TWO_ZONES: &str = r"
error_log stderr notice;
events {}
http {
    access_log off;
    limit_req_zone $http_x_junk zone=small:32k rate=1r/m;
    limit_req_zone $http_x_address zone=perip:1m rate=1000r/m;
    limit_req_status 429;
    server {
        listen 127.0.0.1:8000;
        location / {
            limit_req zone=small;
            limit_req zone=perip;
            proxy_pass http://127.0.0.1:3000;
        }
    }
}
";

/// How many of these requests are admitted. nginx closes a connection after 1,000 requests.
async fn admitted(
    address: std::net::SocketAddr,
    field: &str,
    values: impl Iterator<Item = String>,
) -> usize {
    let (mut admitted, mut client) = (0, HttpClient::to(address).await);
    for (index, value) in values.enumerate() {
        if index % 500 == 499 {
            client = HttpClient::to(address).await;
        }
        let reply = get(&mut client, &[(field, &value)]).await;
        admitted += usize::from(reply.status == 200);
    }
    admitted
}

/// The attack behind a real nginx, beside nginx's own `limit_req` under the same attack: three made-up header values for each
/// place in the memory of `small`, and then 300 known and 300 fresh addresses under `perip`. nginx admits all of them, because
/// every zone has memory of its own. Tollgate admitted 37 and 0, because all limits shared one overflow sketch.
#[tokio::test]
async fn i10_junk_keys_lock_nobody_out_of_another_limit_here_as_in_nginx() {
    let server = serve_policy(TWO_LIMITS).await;
    let two_zones = TWO_ZONES.replace("127.0.0.1:3000", &server.address.to_string());
    let gateways = [
        Nginx::running(&documented(&server)),
        Nginx::running(&two_zones),
    ];
    for (gateway, what) in gateways.iter().zip(["tollgate", "limit_req"]) {
        let address = gateway.address();
        let all = |kind: &'static str, count: u32| (0..count).map(move |n| format!("{kind}-{n}"));
        let known = admitted(address, "x-address", all("known", 300)).await;
        let junk = admitted(address, "x-junk", all("junk", 5_250)).await;
        assert_eq!(
            (known, junk),
            (300, 5_250),
            "{what}: nobody has asked twice"
        );
        let fresh = admitted(address, "x-address", all("fresh", 300)).await;
        assert_eq!(fresh, 300, "{what}: fresh addresses");
        // The rate of nginx is in milliseconds of real time, so known addresses ask it only once.
        if what == "tollgate" {
            let known = admitted(address, "x-address", all("known", 300)).await;
            assert_eq!(known, 300, "{what}: known addresses");
        }
    }
}
