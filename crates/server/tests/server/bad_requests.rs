//! Invalid requests, and the errors that explain them.

use crate::harness::serve_demo;

#[tokio::test]
async fn bad_queries_are_answered_with_field_value_and_reason() {
    let server = serve_demo().await;
    let mut client = server.connect().await;
    let cases = [
        (
            "cost=abc",
            r#"cost: "abc" is not valid: it must be a whole number"#,
        ),
        (
            "cost=-1",
            r#"cost: "-1" is not valid: it must not be negative"#,
        ),
        (
            "cost=18446744073709551616",
            r#"cost: "18446744073709551616" is not valid: it is above 18446744073709551615"#,
        ),
        (
            "user=alice",
            "user: \"alice\" is not valid: there is no such attribute; there are ip, method, host, route, path, domain, \
             header.NAME, query.NAME, cookie.NAME, claim.NAME, descriptor.NAME, descriptors.NAME, extension.NAME",
        ),
        (
            "key=a&header.x-api-key=b",
            r#"header.x-api-key: "b" is not valid: header.x-api-key is given twice"#,
        ),
        (
            "key=%zz",
            r#"key: "%zz" is not valid: a % must be followed by two hexadecimal digits"#,
        ),
        (
            "ip=here",
            r#"ip: "here" is not valid: it is not an IP address"#,
        ),
    ];
    for (query, detail) in cases {
        for path in ["/v1/check", "/v1/status"] {
            let answer = client.get(&format!("{path}?{query}")).await;
            assert_eq!((answer.status, answer.problem().as_str()), (400, detail));
            assert_eq!(answer.field("ratelimit"), None);
        }
    }
    let both = client.post("/v1/check?key=a", "{}").await;
    let detail = r#"query: "key=a" is not valid: with POST all parameters belong in the body"#;
    assert_eq!((both.status, both.problem().as_str()), (400, detail));
}

#[tokio::test]
async fn bad_bodies_are_answered_with_field_value_and_reason() {
    let server = serve_demo().await;
    let mut client = server.connect().await;
    let cases = [
        (
            "/v1/check",
            r#"{"cost": -1}"#,
            r#"cost: "-1" is not valid: it must not be negative"#,
        ),
        (
            "/v1/check",
            r#"{"attributes": {"ip": 5}}"#,
            r#"attributes.ip: "5" is not valid: it must be a string"#,
        ),
        (
            "/v1/check",
            r#"{"user": "alice"}"#,
            r#"user: "\"alice\"" is not valid: there is no such field; there are attributes, key, cost, wait, peek"#,
        ),
        (
            "/v1/check",
            r#"{"wait": 2}"#,
            r#"wait: "2" is not valid: it must be a string"#,
        ),
        (
            "/v1/check",
            "key=alice",
            r#"body: "key=alice" is not valid: it must be a JSON object"#,
        ),
        (
            "/v1/check",
            "",
            r#"body: "" is not valid: it must be a JSON object"#,
        ),
        (
            "/v1/check",
            "{",
            r#"body: "{" is not valid: EOF while parsing an object at line 1 column 1"#,
        ),
        (
            "/v1/check/batch",
            r#"{"requests": [{}, {"cost": "1"}]}"#,
            r#"requests[1].cost: "\"1\"" is not valid: it must be a whole number"#,
        ),
        (
            "/v1/acquire",
            r#"{"peek": true}"#,
            r#"peek: "true" is not valid: a peek cannot hold a lease; use /v1/check"#,
        ),
        (
            "/v1/respond",
            r#"{"ticket": "00000000000000000000000000000000"}"#,
            r#"status: "" is not valid: it must be given"#,
        ),
        (
            "/v1/settle",
            r#"{"ticket": "00000000000000000000000000000000"}"#,
            r#"cost: "" is not valid: it must be given"#,
        ),
        (
            "/v1/cancel",
            r#"{"ticket": "00000000000000000000000000000000", "cost": 1}"#,
            r#"cost: "1" is not valid: there is no such field; there are ticket"#,
        ),
    ];
    for (path, body, detail) in cases {
        let answer = client.post(path, body).await;
        assert_eq!((answer.status, answer.problem().as_str()), (400, detail));
    }
}

#[tokio::test]
async fn bodies_are_bounded() {
    let server = serve_demo().await;
    let body = |len: usize| format!("{}{{\"key\":\"a\"}}", " ".repeat(len - 11));
    let fits = server.connect().await.post("/v1/check", &body(8_192)).await;
    assert_eq!(fits.status, 200);

    let detail = "body: it is longer than 8192 bytes";
    let declared = server.connect().await.post("/v1/check", &body(8_193)).await;
    assert_eq!(
        (declared.status, declared.problem().as_str()),
        (413, detail)
    );

    let mut chunked = server.connect().await;
    let head = "POST /v1/check HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n";
    chunked
        .send(&format!("{head}2001\r\n{}\r\n0\r\n\r\n", body(8_193)))
        .await;
    let answer = chunked.read_response(false).await;
    assert_eq!((answer.status, answer.problem().as_str()), (413, detail));

    let many = format!(r#"{{"requests": [{}{{}}]}}"#, "{\"cost\": 0},".repeat(99));
    let fits = server.connect().await.post("/v1/check/batch", &many).await;
    assert_eq!(fits.status, 200);
    assert_eq!(fits.json()["answers"].as_array().map(Vec::len), Some(100));
    let padded = format!("{}{many}", " ".repeat(262_144));
    let declared = server
        .connect()
        .await
        .post("/v1/check/batch", &padded)
        .await;
    assert_eq!(declared.status, 413);
}

#[tokio::test]
async fn unknown_paths_and_methods_are_problems_too() {
    let server = serve_demo().await;
    let mut client = server.connect().await;
    let nowhere = client.get("/v1/chekc?key=a").await;
    assert_eq!(nowhere.status, 404);
    assert_eq!(nowhere.problem(), r#"there is no endpoint at "/v1/chekc""#);

    let cases = [
        ("/v1/check", "GET, POST"),
        ("/v1/check/batch", "POST"),
        ("/v1/limits", "GET, HEAD"),
        ("/healthz", "GET, HEAD"),
        ("/", "GET, HEAD"),
    ];
    for (target, allowed) in cases {
        let answer = client.request("DELETE", target, "").await;
        assert_eq!((answer.status, answer.field("allow")), (405, Some(allowed)));
        let detail = format!("DELETE is not allowed here; allowed are {allowed}");
        assert_eq!(answer.problem(), detail);
    }
}

#[tokio::test]
async fn health_and_the_front_page_are_plain_text() {
    let server = serve_demo().await;
    let mut client = server.connect().await;
    let health = client.get("/healthz").await;
    assert_eq!((health.status, health.body.as_str()), (200, "ok\n"));
    let head = client.request("HEAD", "/healthz", "").await;
    assert_eq!((head.status, head.body.as_str()), (200, ""));

    let front = client.get("/").await;
    assert_eq!(
        front.field("content-type"),
        Some("text/plain; charset=utf-8")
    );
    assert!(front.body.contains(
        "demo: every request; for each header.x-api-key; at most 20 at once, then one every 100 ms;"
    ));
    let command = format!("curl -i 'http://{}/v1/check?key=alice'", server.address);
    assert!(front.body.contains(&command), "{}", front.body);
    assert_eq!(front.body.matches("curl ").count(), 3);
    assert_eq!(front.field("vary"), Some("accept"));
}

#[tokio::test]
async fn browsers_get_a_page_and_metrics_point_to_the_admin_listener() {
    let server = serve_demo().await;
    let mut client = server.connect().await;
    let accept = [("accept", "text/html,application/xhtml+xml,*/*;q=0.8")];
    let page = client.request_with("GET", "/", &accept, "").await;
    assert_eq!(page.status, 200);
    assert_eq!(page.field("content-type"), Some("text/html; charset=utf-8"));
    assert_eq!(page.field("x-content-type-options"), Some("nosniff"));
    assert!(page.body.starts_with("<!doctype html>"), "{}", page.body);
    assert!(page.body.contains("demo: every request;"), "{}", page.body);
    let curl = client
        .request_with("GET", "/", &[("accept", "*/*")], "")
        .await;
    assert_eq!(
        curl.field("content-type"),
        Some("text/plain; charset=utf-8")
    );

    let metrics = client.get("/metrics").await;
    let detail = "metrics are on the admin listener, by default http://127.0.0.1:8088/metrics; see --listen-admin";
    assert_eq!((metrics.status, metrics.problem().as_str()), (404, detail));
}
