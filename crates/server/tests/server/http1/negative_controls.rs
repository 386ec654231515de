//! Defective fast paths that the comparison with hyper must detect, and the share of random requests that are plain.
//!
//! The fast path here is a small separate one: httparse, the handler, and hyper from the first request on that is not plain.
//! Without a defect it passes every comparison; with any defect it must fail.

use http_body_util::BodyExt as _;
use hyper::Request;
use proptest::strategy::{Strategy as _, ValueTree as _};
use proptest::test_runner::TestRunner;
use tollgate_server::HttpLimits;

use super::SHAPES;
use super::any_bytes::{answers, app, comparable, peer, run};
use super::requests::pipelined_requests;
use crate::harness::ready_now;

/// The defects of a parser.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Defect {
    None,
    IgnoresTransferEncoding,
    TakesTheFirstLength,
    TakesAnyNumber,
    IgnoresClose,
    IgnoresBodiesOfGet,
    AnswersHeadInFull,
    KeepsHttp10Open,
}

const DEFECTS: [Defect; 7] = [
    Defect::IgnoresTransferEncoding,
    Defect::TakesTheFirstLength,
    Defect::TakesAnyNumber,
    Defect::IgnoresClose,
    Defect::IgnoresBodiesOfGet,
    Defect::AnswersHeadInFull,
    Defect::KeepsHttp10Open,
];

/// A request that is plain or seems so: its method, target, body and length.
fn parse(input: &[u8], defect: Defect) -> Option<(&str, String, &[u8], usize)> {
    let mut fields = [httparse::EMPTY_HEADER; 64];
    let mut request = httparse::Request::new(&mut fields);
    let Ok(httparse::Status::Complete(head)) = request.parse(input) else {
        return None;
    };
    let method = match (request.method?, request.version?) {
        (method @ ("GET" | "POST"), 1) => method,
        (method @ ("GET" | "POST"), 0) if defect == Defect::KeepsHttp10Open => method,
        ("HEAD", 1) if defect == Defect::AnswersHeadInFull => "GET",
        _ => return None,
    };
    let target = request.path?.to_owned();
    let is_ordinary = |byte: u8| byte.is_ascii_alphanumeric() || b"/?&=%_.-".contains(&byte);
    if !target.starts_with('/') || !target.bytes().all(is_ordinary) || head > 8_000 {
        return None;
    }
    let mut length = None;
    for field in request.headers.iter() {
        let value = std::str::from_utf8(field.value).ok()?;
        match field.name.to_ascii_lowercase().as_str() {
            "content-length" if length.is_some() => match defect {
                Defect::TakesTheFirstLength => {}
                _ => return None,
            },
            "content-length" => {
                let is_number = value.bytes().all(|byte| byte.is_ascii_digit());
                if !is_number && defect != Defect::TakesAnyNumber {
                    return None;
                }
                length = Some(value.parse::<usize>().ok()?);
            }
            "transfer-encoding" if defect != Defect::IgnoresTransferEncoding => return None,
            "connection" if defect != Defect::IgnoresClose => return None,
            "expect" | "upgrade" => return None,
            _ => {}
        }
    }
    let length = match (method, length.unwrap_or(0)) {
        ("GET", 1..) if defect == Defect::IgnoresBodiesOfGet => 0,
        ("GET", 1..) | (_, 4_096..) => return None,
        // hyper handles everything that is not plain.
        ("POST", 1..) if !target.starts_with("/v1/check") => return None,
        (_, length) => length,
    };
    let body = input.get(head..head + length)?;
    Some((method, target, body, head + length))
}

/// The responses of a fast path with this defect, and how many requests it parsed.
fn with_defect(packets: &[&[u8]], defect: Defect) -> (String, usize) {
    let (app, mut out, mut taken) = (app(), Vec::new(), 0);
    for (index, packet) in packets.iter().enumerate() {
        let mut rest = *packet;
        while let Some((method, target, body, len)) = parse(rest, defect) {
            let mut request = Request::builder().method(method).uri(target);
            // Only plain requests come here, and httparse finds the same fields again.
            let mut fields = [httparse::EMPTY_HEADER; 64];
            let mut again = httparse::Request::new(&mut fields);
            assert!(again.parse(rest).is_ok());
            for field in again.headers.iter() {
                request = request.header(field.name, field.value);
            }
            let response = ready_now(app.respond(&request.body(body).unwrap(), &peer()));
            write(response, &mut out);
            rest = &rest[len..];
            taken += 1;
        }
        if !rest.is_empty() {
            let mut limits = HttpLimits::default();
            limits.fast_path = false;
            let rest: Vec<&[u8]> = [rest]
                .iter()
                .chain(&packets[index + 1..])
                .copied()
                .collect();
            out.extend(answers(&app, limits, &rest));
            break;
        }
    }
    (comparable(&out), taken)
}

fn write(response: hyper::Response<http_body_util::Full<bytes::Bytes>>, out: &mut Vec<u8>) {
    let (head, body) = response.into_parts();
    let body = ready_now(body.collect()).unwrap().to_bytes();
    out.extend_from_slice(format!("HTTP/1.1 {}\r\n", head.status).as_bytes());
    for (name, value) in &head.headers {
        out.extend_from_slice(format!("{name}: ").as_bytes());
        out.extend_from_slice(value.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    if head.status != 204 {
        out.extend_from_slice(format!("content-length: {}\r\n", body.len()).as_bytes());
    }
    out.extend_from_slice(format!("date: {}\r\n\r\n", "*".repeat(29)).as_bytes());
    out.extend_from_slice(&body);
}

#[test]
fn control_every_wrong_parser_is_noticed_by_a_shape_and_a_right_one_by_none() {
    for defect in [Defect::None].into_iter().chain(DEFECTS) {
        let differ = |(_, bytes): &&(&str, &str)| {
            let packets = [bytes.as_bytes()];
            with_defect(&packets, defect).0 != run(false, &packets)
        };
        let noticed: Vec<&str> = SHAPES
            .iter()
            .filter(differ)
            .map(|(name, _)| *name)
            .collect();
        assert_eq!(
            noticed.is_empty(),
            defect == Defect::None,
            "{defect:?} {noticed:?}"
        );
    }
}

/// If hardly any request were plain, random pipelines would compare hyper with itself.
#[test]
fn control_random_pipelines_are_plain_often_enough_and_notice_a_wrong_parser() {
    let (strategy, mut runner) = (pipelined_requests(), TestRunner::deterministic());
    let (mut taken, mut noticed) = (0, 0);
    for _ in 0..400 {
        let sent = strategy.new_tree(&mut runner).unwrap().current();
        let packets = sent.packets();
        let by_hyper = run(false, &packets);
        let (right, count) = with_defect(&packets, Defect::None);
        assert_eq!(right, by_hyper, "{}", sent.bytes.escape_ascii());
        taken += count;
        let differs = |defect| with_defect(&packets, defect).0 != by_hyper;
        noticed += usize::from(DEFECTS.into_iter().any(differs));
    }
    assert!(taken > 200, "only {taken} requests were plain");
    assert!(noticed > 20, "only {noticed} pipelines tell");
}
