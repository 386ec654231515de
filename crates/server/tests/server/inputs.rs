//! What is asked wrongly, and what the answer says about it.

use crate::harness::demo;

#[tokio::test]
async fn bad_queries_are_answered_with_field_value_and_reason() {
    let server = demo().await;
    let mut client = server.connect().await;
    let long = "x".repeat(1_025);
    let shown = "x".repeat(64);
    let unknown = "there is no such field; there are key, cost and limit";
    let escape = "a % must be followed by two hexadecimal digits";
    let cases = [
        (
            "cost=abc",
            r#"cost: "abc" is not valid: it must be a whole number"#.to_owned(),
        ),
        (
            "cost=-1",
            r#"cost: "-1" is not valid: it must not be negative"#.to_owned(),
        ),
        (
            "cost=18446744073709551616",
            r#"cost: "18446744073709551616" is not valid: it is above 18446744073709551615"#
                .to_owned(),
        ),
        (
            "key=",
            r#"key: "" is not valid: it must not be empty"#.to_owned(),
        ),
        (
            "user=alice",
            format!(r#"user: "alice" is not valid: {unknown}"#),
        ),
        (
            "key=a&key=b",
            r#"key: "b" is not valid: it is given twice"#.to_owned(),
        ),
        ("key=%zz", format!(r#"key: "%zz" is not valid: {escape}"#)),
        (
            "limit=other",
            r#"limit: "other" is not valid: there is no such limit; there is "demo""#.to_owned(),
        ),
        (
            &format!("key={long}"),
            format!(r#"key: "{shown}…" is not valid: it has 1025 bytes, at most 1024 fit"#),
        ),
    ];
    for (query, detail) in cases {
        for method in ["GET", "POST"] {
            let answer = client.ask(method, &format!("/v1/check?{query}"), "").await;
            assert_eq!((answer.status, answer.problem()), (400, detail.clone()));
            assert_eq!(answer.field("ratelimit"), None);
        }
    }
}

#[tokio::test]
async fn bad_bodies_are_answered_with_field_value_and_reason() {
    let server = demo().await;
    let mut client = server.connect().await;
    let cases = [
        (
            r#"{"cost": -1}"#,
            r#"cost: "-1" is not valid: it must not be negative"#,
        ),
        (
            r#"{"key": ""}"#,
            r#"key: "" is not valid: it must not be empty"#,
        ),
        (
            "key=alice",
            r#"body: "key=alice" is not valid: it must be a JSON object"#,
        ),
        (
            "{",
            r#"body: "{" is not valid: EOF while parsing an object at line 1 column 1"#,
        ),
    ];
    for (body, detail) in cases {
        let answer = client.post("/v1/check", body).await;
        assert_eq!((answer.status, answer.problem().as_str()), (400, detail));
    }
    let unknown = client.post("/v1/check", r#"{"user": "alice"}"#).await;
    assert_eq!(unknown.status, 400);
    assert!(unknown.problem().contains("unknown field `user`"));
    let twice = client.post("/v1/check?key=a", r#"{"key": "b"}"#).await;
    assert_eq!(
        (twice.status, twice.problem().as_str()),
        (400, r#"key: "b" is not valid: it is given twice"#)
    );
}

#[tokio::test]
async fn a_body_is_at_most_eight_kibibytes() {
    let server = demo().await;
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
    let answer = chunked.answer(false).await;
    assert_eq!((answer.status, answer.problem().as_str()), (413, detail));
}

#[tokio::test]
async fn unknown_paths_and_methods_are_problems_too() {
    let server = demo().await;
    let mut client = server.connect().await;
    let nowhere = client.get("/v1/chekc?key=a").await;
    assert_eq!(nowhere.status, 404);
    assert_eq!(nowhere.problem(), r#"there is nothing at "/v1/chekc""#);

    let cases = [
        ("/v1/check", "GET, POST"),
        ("/healthz", "GET, HEAD"),
        ("/", "GET, HEAD"),
    ];
    for (target, allowed) in cases {
        let answer = client.ask("DELETE", target, "").await;
        assert_eq!((answer.status, answer.field("allow")), (405, Some(allowed)));
        let detail = format!("DELETE is not possible here; possible are {allowed}");
        assert_eq!(answer.problem(), detail);
    }
}

#[tokio::test]
async fn health_and_the_front_page_are_plain_text() {
    let server = demo().await;
    let mut client = server.connect().await;
    let health = client.get("/healthz").await;
    assert_eq!((health.status, health.body.as_str()), (200, "ok\n"));
    let head = client.ask("HEAD", "/healthz", "").await;
    assert_eq!((head.status, head.body.as_str()), (200, ""));

    let front = client.get("/").await;
    assert_eq!(
        front.field("content-type"),
        Some("text/plain; charset=utf-8")
    );
    assert!(
        front
            .body
            .contains("demo: at most 20 at once, then one every 100 ms, for each key")
    );
    let command = format!("curl -i 'http://{}/v1/check?key=alice'", server.address);
    assert!(front.body.contains(&command), "{}", front.body);
    assert_eq!(front.body.matches("curl ").count(), 3);
}
