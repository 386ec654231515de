//! Valid and invalid JSON bodies.

use tollgate_policy::attributes::{Attribute, Attributes as _};

use super::*;

fn named<'a>(request: &'a CheckRequest, name: &str) -> Option<&'a [u8]> {
    request.attributes.get(&Attribute::parse(name).unwrap())
}

#[test]
fn every_field_is_optional() {
    assert_eq!(parse_check_request(b"{}"), Ok(CheckRequest::default()));
    let body =
        r#" {"attributes": {"header.x-plan": "\u00e9", "ip": "::1"}, "cost": 0, "peek": true} "#;
    let request = parse_check_request(body.as_bytes()).unwrap();
    assert_eq!(named(&request, "header.x-plan"), Some("é".as_bytes()));
    assert_eq!((request.cost, request.is_peek()), (Some(0), true));
    let most = parse_check_request(br#"{"cost":18446744073709551615}"#).unwrap();
    assert_eq!(most.cost, Some(u64::MAX));
}

/// Found by schemathesis: JSON Schema accepts 3.0 as an integer, and Lua and JavaScript write such numbers.
#[test]
fn a_whole_number_may_be_written_with_a_point() {
    for (body, cost) in [
        (r#"{"cost":3.0}"#, 3),
        (r#"{"cost":0.0}"#, 0),
        (r#"{"cost":1e3}"#, 1_000),
        (r#"{"cost":1.5e1}"#, 15),
        (r#"{"cost":1e16}"#, 10_000_000_000_000_000),
    ] {
        let request = parse_check_request(body.as_bytes()).unwrap();
        assert_eq!(request.cost, Some(cost), "{body}");
    }
}

#[test]
fn invalid_input_is_named() {
    let whole = "it must be a whole number";
    let cases = [
        (r#"{"key":null}"#, "key", "null", "it must be a string"),
        (
            r#"{"attributes":{"ip":7}}"#,
            "attributes.ip",
            "7",
            "it must be a string",
        ),
        (
            r#"{"attributes":{"ip":"x"}}"#,
            "attributes.ip",
            "x",
            "it is not an IP address",
        ),
        (
            r#"{"attributes":[]}"#,
            "attributes",
            "[…]",
            "it must be an object",
        ),
        (
            r#"{"attributes":{"a":"b"}}"#,
            "attributes.a",
            "b",
            "there is no such attribute",
        ),
        (r#"{"cost":"3"}"#, "cost", "\"3\"", whole),
        (r#"{"cost":null}"#, "cost", "null", whole),
        (r#"{"cost":{}}"#, "cost", "{…}", whole),
        (r#"{"cost":1.5}"#, "cost", "1.5", whole),
        (r#"{"cost":-1}"#, "cost", "-1", "it must not be negative"),
        (
            r#"{"cost":18446744073709551616}"#,
            "cost",
            "18446744073709551616",
            "it is above",
        ),
        (
            r#"{"cost":1e40}"#,
            "cost",
            "10000000000000000303786028427003666890752",
            "it is above",
        ),
        (r#"{"cost":-3.0}"#, "cost", "-3", "it must not be negative"),
        (r#"{"peek":1}"#, "peek", "1", "it must be true or false"),
        (
            r#"{"user":"a"}"#,
            "user",
            "\"a\"",
            "there is no such field; there are attributes, key,",
        ),
    ];
    for (body, field, value, reason) in cases {
        let error = parse_check_request(body.as_bytes()).unwrap_err();
        let parts = (error.field.as_str(), error.value.as_str());
        assert_eq!(parts, (field, value), "{body}");
        assert!(error.reason.starts_with(reason), "{error}");
    }
}

#[test]
fn bodies_that_are_not_such_an_object_are_refused() {
    let cases = [
        ("", "it must be a JSON object"),
        ("key=alice", "it must be a JSON object"),
        (r#"["alice", 1, "demo"]"#, "it must be a JSON object"),
        ("{", "EOF while parsing an object"),
        (r#"{"key":"a"} x"#, "trailing characters"),
        (
            r#"{"key":"a","key":"b"}"#,
            "the field \"key\" is given twice",
        ),
        (
            r#"{"attributes":{"ip":"::1","ip":"::2"}}"#,
            "the field \"ip\" is given twice",
        ),
    ];
    for (body, reason) in cases {
        let error = parse_check_request(body.as_bytes()).unwrap_err();
        assert_eq!(error.field, "body");
        assert!(error.reason.contains(reason), "{error}");
    }
    let deep = "{\"key\":".repeat(1_000);
    assert!(parse_check_request(deep.as_bytes()).is_err());
}

#[test]
fn an_error_in_a_batch_names_its_request() {
    let batch = parse_check_requests(br#"{"requests": [{}, {"cost": 2}]}"#).unwrap();
    assert_eq!(batch.len(), 2);
    assert_eq!(batch[1].cost, Some(2));
    let full = format!(r#"{{"requests": [{}{{}}]}}"#, "{},".repeat(100));
    let cases = [
        (r#"{"requests": [{}, {"cost": -2}]}"#, "requests[1].cost"),
        (
            r#"{"requests": [{"attributes": {"ip": "x"}}]}"#,
            "requests[0].attributes.ip",
        ),
        (r#"{"requests": [[]]}"#, "requests[0]"),
        (r#"{"requests": {}}"#, "requests"),
        (r#"{}"#, "requests"),
        (r#"{"questions": []}"#, "questions"),
        (full.as_str(), "requests"),
    ];
    for (body, field) in cases {
        assert_eq!(
            parse_check_requests(body.as_bytes()).unwrap_err().field,
            field
        );
    }
}

#[test]
fn a_report_is_read_as_far_as_its_endpoint_goes() {
    let body = r#"{"ticket": "000000000000000000000000000000ff", "status": 404, "headers": {"X-Cost": "7"}}"#;
    let report = parse_report(body.as_bytes(), &["status", "headers"]).unwrap();
    let expected = TicketReport {
        ticket: 255,
        status: Some(404),
        headers: vec![("x-cost".into(), b"7".as_slice().into())],
        cost: None,
    };
    assert_eq!(report, expected);
    assert_eq!(
        parse_report(body.as_bytes(), &[]).unwrap_err().field,
        "status"
    );
    for (body, field) in [
        (r#"{}"#, "ticket"),
        (r#"{"ticket": "ff"}"#, "ticket"),
        (
            r#"{"ticket": "+00000000000000000000000000000ff"}"#,
            "ticket",
        ),
        (r#"{"ticket": 5}"#, "ticket"),
        (r#"{"status": 99}"#, "status"),
        (r#"{"status": 70000}"#, "status"),
        (r#"{"headers": []}"#, "headers"),
        (r#"{"headers": {"a": 1}}"#, "headers.a"),
    ] {
        let error = parse_report(body.as_bytes(), &["status", "headers"]).unwrap_err();
        assert_eq!(error.field, field);
    }
}
