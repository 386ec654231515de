//! The hostile requests, and what becomes of each. Must not know: how they are sent.

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// The upstream sees it once.
    Forwarded,
    /// The upstream sees nothing.
    Refused,
}
use Fate::{Forwarded, Refused};

pub(super) struct HostileRequest {
    pub(super) bytes: Vec<u8>,
    pub(super) fate: Fate,
}

/// What hides behind a request with a body.
const HIDDEN: &str = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";

/// `~` stands for the path of the case, so that the upstream tells which one it saw.
fn case(text: impl AsRef<[u8]>, fate: Fate) -> HostileRequest {
    HostileRequest {
        bytes: text.as_ref().to_vec(),
        fate,
    }
}

/// First lines.
const REQUEST_LINES: &[(&str, Fate)] = &[
    ("GET ~ HTTP/1.1", Forwarded),
    ("GET ~?q=%00 HTTP/1.1", Forwarded),
    ("GET http://a~ HTTP/1.1", Forwarded),
    ("GET https://a~ HTTP/1.1", Forwarded),
    ("GET //~ HTTP/1.1", Forwarded),
    ("GET /x/..~ HTTP/1.1", Forwarded),
    ("GET /%2e%2e~ HTTP/1.1", Forwarded),
    ("OPTIONS ~ HTTP/1.1", Forwarded),
    ("PURGE ~ HTTP/1.1", Forwarded),
    ("GET http://b~ HTTP/1.1", Refused),
    ("GET http://a:81~ HTTP/1.1", Refused),
    ("GET http://u:p@a~ HTTP/1.1", Refused),
    ("GET ftp://a~ HTTP/1.1", Refused),
    ("GET file://~ HTTP/1.1", Refused),
    ("GET gopher://a:70~ HTTP/1.1", Refused),
    ("GET a:80 HTTP/1.1", Refused),
    ("GET a HTTP/1.1", Refused),
    ("GET * HTTP/1.1", Refused),
    ("OPTIONS * HTTP/1.1", Refused),
    ("CONNECT a:443 HTTP/1.1", Refused),
    ("CONNECT ~ HTTP/1.1", Refused),
    ("TRACE ~ HTTP/1.1", Refused),
    ("GET ~", Refused),
    ("GET", Refused),
    ("", Refused),
    ("GET ~ HTTP/0.9", Refused),
    ("GET ~ HTTP/1.2", Refused),
    ("GET ~ HTTP/2.0", Refused),
    ("GET ~ HTTP/3", Refused),
    ("GET ~ HTTP/1.1.1", Refused),
    ("GET ~ HTTP/11", Refused),
    ("GET ~ http/1.1", Refused),
    ("GET ~ HTPP/1.1", Refused),
    ("GET ~ HTTP/1.1 ", Refused),
    ("GET ~ HTTP/1.1 x", Refused),
    ("GET ~ x HTTP/1.1", Refused),
    ("GET  ~ HTTP/1.1", Refused),
    ("GET ~  HTTP/1.1", Refused),
    ("GET\t~ HTTP/1.1", Refused),
    (" GET ~ HTTP/1.1", Refused),
    ("G\u{0}T ~ HTTP/1.1", Refused),
    ("G(T ~ HTTP/1.1", Refused),
    ("GET ~\u{0} HTTP/1.1", Refused),
    ("GET ~\u{1} HTTP/1.1", Refused),
    ("GET ~\u{7f} HTTP/1.1", Refused),
    ("GET ~%00 HTTP/1.1", Refused),
    ("GET ~%0d%0aX:y HTTP/1.1", Refused),
    ("GET ~% HTTP/1.1", Refused),
    ("GET ~%4 HTTP/1.1", Refused),
    ("GET ~%zz HTTP/1.1", Refused),
    ("GET ~%7f HTTP/1.1", Refused),
    ("PRI * HTTP/2.0", Refused),
];

/// Request lines, each with one `Host`.
pub(super) fn request_lines() -> Vec<HostileRequest> {
    let mut cases: Vec<_> = REQUEST_LINES
        .iter()
        .map(|(line, fate)| case(format!("{line}\r\nHost: a\r\n\r\n"), *fate))
        .collect();
    let long = "a".repeat(70_000);
    cases.push(case(
        format!("GET ~{long} HTTP/1.1\r\nHost: a\r\n\r\n"),
        Refused,
    ));
    cases.push(case(
        format!("GET ~{} HTTP/1.1\r\nHost: a\r\n\r\n", &long[..8_200]),
        Refused,
    ));
    cases.push(case(
        format!("{} ~ HTTP/1.1\r\nHost: a\r\n\r\n", &long[..40_000]),
        Refused,
    ));
    cases
}

/// Fields.
const FIELDS: &[(&str, Fate)] = &[
    ("X: y", Forwarded),
    ("X:y", Forwarded),
    ("X:", Forwarded),
    ("X: \t y \t", Forwarded),
    ("X: \u{fc}", Forwarded),
    ("Connection: close", Forwarded),
    ("Connection: close, host", Forwarded),
    ("Connection: x-forwarded-for, via, x-real-ip", Forwarded),
    ("Connection: content-length", Forwarded),
    ("Connection: ,,,", Forwarded),
    ("Connection: \"quoted\"", Forwarded),
    (
        "Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAAQAAP__",
        Forwarded,
    ),
    ("Upgrade: TLS/1.3\r\nConnection: upgrade", Forwarded),
    ("Upgrade: connect-udp\r\nConnection: upgrade", Forwarded),
    ("Proxy-Connection: keep-alive", Forwarded),
    ("Keep-Alive: timeout=5", Forwarded),
    ("Expect: 100-continue", Forwarded),
    ("Expect: something", Forwarded),
    ("Max-Forwards: 0", Forwarded),
    ("TE: chunked, trailers, gzip", Forwarded),
    (
        "Trailer: content-length, host, transfer-encoding",
        Forwarded,
    ),
    (
        "X-Forwarded-For: 10.0.0.1\r\nForwarded: for=10.0.0.1",
        Forwarded,
    ),
    (
        "X-Original-URL: /smuggled\r\nX-Rewrite-URL: /smuggled",
        Forwarded,
    ),
    ("Content-Length: 0", Forwarded),
    ("Host: a", Refused),
    ("Host: b", Refused),
    ("host: a", Refused),
    ("HOST:", Refused),
    ("X : y", Refused),
    (" X: y", Refused),
    ("\tX: y", Refused),
    (": y", Refused),
    ("X", Refused),
    ("X y", Refused),
    ("X: y\r\n folded", Refused),
    ("X: y\r\n\tfolded", Refused),
    ("X(: y", Refused),
    ("X@: y", Refused),
    ("X\u{0}: y", Refused),
    ("X: \u{0}", Refused),
    ("X: y\rz: w", Refused),
    ("X: y\r\r\nz: w", Refused),
    ("X: \u{1}", Refused),
    ("X: \u{b}", Refused),
    ("X: \u{7f}", Refused),
    ("\u{fc}: y", Refused),
];

/// Fields beside `Host: a` of a GET request.
pub(super) fn fields() -> Vec<HostileRequest> {
    let mut cases: Vec<_> = FIELDS
        .iter()
        .map(|(field, fate)| {
            case(
                format!("GET ~ HTTP/1.1\r\nHost: a\r\n{field}\r\n\r\n"),
                *fate,
            )
        })
        .collect();
    let many: String = (0..200).map(|n| format!("x-{n}: y\r\n")).collect();
    cases.push(case(
        format!("GET ~ HTTP/1.1\r\nHost: a\r\n{many}\r\n"),
        Refused,
    ));
    let long = "y".repeat(70_000);
    cases.push(case(
        format!("GET ~ HTTP/1.1\r\nHost: a\r\nX: {long}\r\n\r\n"),
        Refused,
    ));
    cases.push(case(
        format!("GET ~ HTTP/1.1\r\nHost: a\r\n{long}: x\r\n\r\n"),
        Refused,
    ));
    // Lines that end without CR.
    for text in [
        "GET ~ HTTP/1.1\nHost: a\n\n",
        "GET ~ HTTP/1.1\nHost: a\r\n\r\n",
        "GET ~ HTTP/1.1\r\nHost: a\n\r\n",
        "GET ~ HTTP/1.1\r\nHost: a\r\n\n",
        "GET ~ HTTP/1.1\r\nHost: a\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "\nGET ~ HTTP/1.1\r\nHost: a\r\n\r\n",
    ] {
        cases.push(case(text, Refused));
    }
    cases.push(case("\r\nGET ~ HTTP/1.1\r\nHost: a\r\n\r\n", Forwarded));
    cases.push(case("GET ~ HTTP/1.1\r\n\r\n", Refused));
    cases.push(case("GET ~ HTTP/1.0\r\n\r\n", Refused));
    cases.push(case("GET ~ HTTP/1.0\r\nHost: a\r\n\r\n", Forwarded));
    cases
}

/// Values of `Host`.
pub(super) fn hosts() -> Vec<HostileRequest> {
    let mut cases = Vec::new();
    for host in [
        "", " ", "b c", "a/b", "a\\b", "a@b", "a:b", "a:80:80", "a:999999", ":80", "[::1", "[x]",
        "::1", "a,b", "a%2eb", "a?b", "a#b", "*", "http://a", "\u{fc}",
    ] {
        cases.push(case(
            format!("GET ~ HTTP/1.1\r\nHost: {host}\r\n\r\n"),
            Refused,
        ));
    }
    for host in [
        "A",
        "a.",
        "a:80",
        "a:",
        "[::1]",
        "[::1]:80",
        "192.0.2.7",
        "a_b",
        "127.0.0.1:6379",
    ] {
        cases.push(case(
            format!("GET ~ HTTP/1.1\r\nHost: {host}\r\n\r\n"),
            Forwarded,
        ));
    }
    cases
}

/// Codings that are not plainly `chunked`.
const CODINGS: &[&str] = &[
    "Transfer-Encoding: identity",
    "Transfer-Encoding: chunked, identity",
    "Transfer-Encoding: chunked, gzip",
    "Transfer-Encoding: xchunked",
    "Transfer-Encoding: chunkedx",
    "Transfer-Encoding: chunked;q=1",
    "Transfer-Encoding: \"chunked\"",
    "Transfer-Encoding: 'chunked'",
    "Transfer-Encoding:",
    "Transfer-Encoding: gzip",
    "Transfer-Encoding: deflate",
    "Transfer-Encoding: cow",
    "Transfer-Encoding : chunked",
    " Transfer-Encoding: chunked",
    "Transfer-Encoding\t: chunked",
    "Transfer-Encoding: \u{b}chunked",
    "Transfer-Encoding: \u{0}chunked",
    "Transfer-Encoding: chunked\u{0}",
    "X: y\r\n Transfer-Encoding: chunked",
    "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
    "Transfer-Encoding: chunked\r\nTransfer-Encoding: gzip",
    "Transfer-Encoding: chunked\r\nTransfer-Encoding: x",
];

/// Lengths and codings of a POST request, followed by what they would hide.
pub(super) fn framing() -> Vec<HostileRequest> {
    let hidden_len = HIDDEN.len();
    let mut cases = Vec::new();
    // Every length here covers the hidden request, or is refused.
    for (lengths, fate) in [
        (format!("Content-Length: {hidden_len}"), Forwarded),
        (
            format!("Content-Length: {hidden_len}\r\nContent-Length: {hidden_len}"),
            Refused,
        ),
        (
            format!("Content-Length: 0\r\nContent-Length: {hidden_len}"),
            Refused,
        ),
        (
            format!("Content-Length: {hidden_len}\r\nContent-Length: 0"),
            Refused,
        ),
        (
            format!("Content-Length: {hidden_len}, {hidden_len}"),
            Refused,
        ),
        (format!("Content-Length: 0, {hidden_len}"), Refused),
        (format!("Content-Length: +{hidden_len}"), Refused),
        (format!("Content-Length: -{hidden_len}"), Refused),
        (format!("Content-Length: {hidden_len}.0"), Refused),
        (format!("Content-Length: 0x{hidden_len}"), Refused),
        (format!("Content-Length: {hidden_len} 0"), Refused),
        (format!("Content-Length: \"{hidden_len}\""), Refused),
        (format!("Content-Length: {hidden_len};"), Refused),
        (format!("Content-Length : {hidden_len}"), Refused),
        ("Content-Length:".to_owned(), Refused),
        ("Content-Length: x".to_owned(), Refused),
        ("Content-Length: 18446744073709551616".to_owned(), Refused),
        (
            "Content-Length: 99999999999999999999999".to_owned(),
            Refused,
        ),
        (format!("Content-Length: \u{b}{hidden_len}"), Refused),
        (
            format!("Content_Length: 0\r\nContent-Length: {hidden_len}"),
            Forwarded,
        ),
    ] {
        let text = format!("POST ~ HTTP/1.1\r\nHost: a\r\n{lengths}\r\n\r\n{HIDDEN}");
        cases.push(case(text, fate));
    }
    // A coding that is not plainly `chunked` is refused, whatever a length says.
    for coding in CODINGS {
        for length in ["", "Content-Length: 4\r\n"] {
            let text =
                format!("POST ~ HTTP/1.1\r\nHost: a\r\n{length}{coding}\r\n\r\n0\r\n\r\n{HIDDEN}");
            cases.push(case(text, Refused));
        }
    }
    // Both a length and a coding, or the same coding twice: servers disagree about them.
    for both in [
        "Content-Length: 4\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 4",
        "Transfer-Encoding: chunked\r\nContent-Length: 0\r\nContent-Length: 9",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: chunked, chunked",
        "transfer-encoding: chunked\r\nX: y\r\ncontent-length: 4",
    ] {
        let text = format!("POST ~ HTTP/1.1\r\nHost: a\r\n{both}\r\n\r\n0\r\n\r\n{HIDDEN}");
        cases.push(case(text, Refused));
    }
    // HTTP/1.0 has no codings.
    let text = format!(
        "POST ~ HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{HIDDEN}"
    );
    cases.push(case(text, Refused));
    cases
}

/// Chunked bodies that end in the middle, are malformed, or have more than they need.
pub(super) fn chunks() -> Vec<HostileRequest> {
    let chunked = |body: &str, fate| {
        case(
            format!(
                "POST ~ HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n{body}"
            ),
            fate,
        )
    };
    let mut cases: Vec<_> = [
        ("0\r\n\r\n", Forwarded),
        ("3\r\nabc\r\n0\r\n\r\n", Forwarded),
        ("03\r\nabc\r\n00\r\n\r\n", Forwarded),
        ("3;ext\r\nabc\r\n0\r\n\r\n", Forwarded),
        ("3;a=\"b\"\r\nabc\r\n0;last\r\n\r\n", Forwarded),
        ("A\r\n0123456789\r\n0\r\n\r\n", Forwarded),
        ("3\r\nabc\r\n0\r\nX-Sum: 1\r\n\r\n", Forwarded),
        (
            "3\r\nabc\r\n0\r\nHost: b\r\nContent-Length: 5\r\n\r\n",
            Forwarded,
        ),
        ("3\r\nabcd\r\n0\r\n\r\n", Refused),
        ("3\r\nab\r\n0\r\n\r\n", Refused),
        ("3\nabc\n0\n\n", Refused),
        ("3\r\nabc0\r\n\r\n", Refused),
        ("0x3\r\nabc\r\n0\r\n\r\n", Refused),
        ("-1\r\nabc\r\n0\r\n\r\n", Refused),
        ("+3\r\nabc\r\n0\r\n\r\n", Refused),
        ("3 3\r\nabc\r\n0\r\n\r\n", Refused),
        ("g\r\nabc\r\n0\r\n\r\n", Refused),
        ("\r\nabc\r\n0\r\n\r\n", Refused),
        ("3\u{0}\r\nabc\r\n0\r\n\r\n", Refused),
        ("3;\r\r\nabc\r\n0\r\n\r\n", Refused),
        ("3;a\nb\r\nabc\r\n0\r\n\r\n", Refused),
        ("FFFFFFFFFFFFFFFFF\r\nabc\r\n0\r\n\r\n", Refused),
        ("ffffffffffffffff\r\nabc\r\n0\r\n\r\n", Refused),
        ("3\r\nabc\r\n", Refused),
        ("3\r\na", Refused),
        ("3", Refused),
        ("", Refused),
    ]
    .map(|(body, fate)| chunked(body, fate))
    .into();
    let long = "x".repeat(20_000);
    cases.push(chunked(&format!("3;{long}\r\nabc\r\n0\r\n\r\n"), Refused));
    cases.push(chunked(
        &format!("3\r\nabc\r\n0\r\nX: {}\r\n\r\n", long.repeat(4)),
        Refused,
    ));
    let many: String = (0..2_000).map(|n| format!("x-{n}: y\r\n")).collect();
    cases.push(chunked(&format!("3\r\nabc\r\n0\r\n{many}\r\n"), Refused));
    cases.push(chunked(&"1;\r\na\r\n".repeat(10).to_string(), Refused));
    cases
}

/// What is not HTTP/1.1 at all.
pub(super) fn other_protocols() -> Vec<HostileRequest> {
    [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..],
        b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"PROXY TCP4 127.0.0.1 127.0.0.1 1 2\r\nGET ~ HTTP/1.1\r\nHost: a\r\n\r\n",
        b"\r\n\r\n\r\nSSH-2.0-x\r\n",
        b"*1\r\n$4\r\nPING\r\n",
        b"\x00\x00\x00\x00\x00\x00\x00\x00",
        b"\xef\xbb\xbfGET ~ HTTP/1.1\r\nHost: a\r\n\r\n",
        b"{\"a\": 1}\r\n\r\n",
        b"EHLO a\r\n",
        b"GET ~\r\n",
        b"GET ~\n",
    ]
    .map(|bytes| case(bytes, Refused))
    .into()
}
