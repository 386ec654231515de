//! Random pipelines of HTTP/1 requests: mostly plain ones, with spellings that a client or an attacker may choose.
//!
//! Must not know: which server parses them.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

/// The packets that a client sends on one connection.
#[derive(Clone, Debug)]
pub(crate) struct PipelinedRequests {
    pub(crate) bytes: Vec<u8>,
    cuts: Vec<usize>,
}

impl PipelinedRequests {
    pub(crate) fn packets(&self) -> Vec<&[u8]> {
        let mut packets = Vec::new();
        let mut rest = self.bytes.as_slice();
        for cut in &self.cuts {
            let (packet, after) = rest.split_at(*cut % (rest.len() + 1));
            packets.push(packet);
            rest = after;
        }
        packets.push(rest);
        packets
    }
}

/// A few pipelined requests, split anywhere, sometimes with one byte changed.
pub(crate) fn pipelined_requests() -> impl Strategy<Value = PipelinedRequests> {
    let damage = prop_oneof![
        8 => Just(None),
        1 => (any::<usize>(), any::<u8>()).prop_map(Some),
        1 => (any::<usize>(), select(b"\r\n\0 :\t,;\x7f\xff".as_slice())).prop_map(Some),
    ];
    let cuts = prop_oneof![3 => vec(any::<usize>(), 0..1), 1 => vec(any::<usize>(), 1..4)];
    (vec(request(), 1..6), cuts, damage).prop_map(|(requests, cuts, damage)| {
        let mut bytes = requests.concat();
        if let Some((at, byte)) = damage
            && !bytes.is_empty()
        {
            let at = at % bytes.len();
            bytes[at] = byte;
        }
        PipelinedRequests { bytes, cuts }
    })
}

fn request() -> impl Strategy<Value = Vec<u8>> {
    let method = prop_oneof![
        10 => Just("GET"),
        10 => Just("POST"),
        1 => select(&["HEAD", "PUT", "get", "OPTIONS", "DELETE", "G@T", ""][..]),
    ];
    let version = prop_oneof![
        20 => Just("HTTP/1.1"),
        1 => select(&["HTTP/1.0", "HTTP/1.2", "HTTP/2.0", "http/1.1", ""][..]),
    ];
    let end = prop_oneof![60 => Just("\r\n"), 1 => select(&["\n", "\r", "\r\n\r\n", "\r\n "][..])];
    let body = prop_oneof![
        2 => Just(""),
        4 => Just(r#"{"key":"a"}"#),
        1 => Just(r#"{"key":"b","cost":2,"peek":true}"#),
        1 => Just("GET /healthz HTTP/1.1\r\n\r\n"),
        1 => Just("{"),
    ];
    (
        method,
        target(),
        version,
        vec(field(), 0..5),
        end,
        body,
        any::<u8>(),
    )
        .prop_map(|(method, target, version, fields, end, body, form)| {
            let mut head = format!("{method} {target} {version}{end}");
            let mut fields = fields;
            // A GET rarely has a body.
            let body = if method == "GET" && form > 40 {
                ""
            } else {
                body
            };
            let length = match body {
                "" => String::new(),
                body => length(form, body.len()),
            };
            let place = usize::from(form) % (fields.len() + 1);
            fields.insert(place, length);
            for field in fields.iter().filter(|field| !field.is_empty()) {
                head.push_str(field);
                head.push_str(end);
            }
            head.push_str(end);
            let mut bytes = head.into_bytes();
            bytes.extend_from_slice(body.as_bytes());
            bytes
        })
}

/// The declared length of the body: usually correct, in the usual form.
fn length(form: u8, len: usize) -> String {
    match form % 80 {
        0..=2 => String::new(),
        3 => format!("content-length: +{len}"),
        4 => format!("content-length: 0{len}"),
        5 => format!("content-length: {len}, {len}"),
        6 => format!("content-length: {len}\r\ncontent-length: {len}"),
        7 => format!("content-length: {len}\r\ncontent-length: 0"),
        8 => format!("content-length: {}", len + 1),
        9 => format!("content-length: {}", len.saturating_sub(1)),
        10 => format!("content-length:\t{len} "),
        11 => format!("content-length: {len}\r\ntransfer-encoding: chunked"),
        12 => "content-length: 18446744073709551617".to_owned(),
        13 => "content-length: -1".to_owned(),
        14 => "content-length: 0x5".to_owned(),
        15 => format!("content-length : {len}"),
        16..=40 => format!("Content-Length: {len}"),
        _ => format!("content-length: {len}"),
    }
}

fn target() -> impl Strategy<Value = String> {
    let known = select(
        &[
            "/healthz",
            "/v1/check",
            "/v1/check?key=a",
            "/v1/check?key=%61&cost=1",
            "/v1/acquire",
            "/v1/status?key=a",
            "/v1/check/batch",
            "/auth/nginx",
            "/auth/traefik",
            "/json",
            "/",
            "/nowhere",
        ][..],
    );
    prop_oneof![
        40 => known.prop_map(str::to_owned),
        1 => "/[a-z0-9/?&=%._~+:@,;!-]{0,20}",
        1 => "[ -~]{0,20}",
        1 => select(&["*", "http://a/healthz", "//healthz", "/healthz#a", "/a\"b", "/%00", "/é", "/?", "??"][..])
            .prop_map(str::to_owned),
    ]
}

fn field() -> impl Strategy<Value = String> {
    let usual = select(
        &[
            "host: a",
            "Host: a.example:80",
            "user-agent: x/1",
            "Accept: */*",
            "content-type: application/json",
            "x-api-key: k",
            "X-API-KEY: K",
            "x-original-method: GET",
            "x-original-uri: /a?b=c",
            "x-original-host: h",
            "x-real-ip: 192.0.2.1",
            "x-forwarded-method: POST",
            "X-Forwarded-Uri: /a",
            "x-forwarded-host: h",
            "x-forwarded-for: 192.0.2.1, 10.0.0.1",
            "connection: keep-alive",
            "Connection: Keep-Alive",
            "cookie: a=b; c=d",
            "x-empty:",
            "Prefer: return=minimal",
            "prefer: wait=1, return=representation",
        ][..],
    );
    let unusual = select(
        &[
            "connection: close",
            "connection: keep-alive, close",
            "connection: upgrade",
            "upgrade: h2c",
            "expect: 100-continue",
            "expect: something",
            "transfer-encoding: chunked",
            "Transfer-Encoding: identity",
            "transfer-encoding:\tchunked",
            "transfer_encoding: chunked",
            "te: trailers",
            "keep-alive: timeout=5",
            " folded: line",
            "no colon",
            ": no name",
            "na me: x",
            "x: a\tb",
            "x: \u{e9}",
        ][..],
    );
    prop_oneof![10 => usual, 1 => unusual].prop_map(str::to_owned)
}
