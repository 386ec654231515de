//! Over 200 hostile requests as raw bytes. Whatever a client sends, the upstream sees exactly one well-formed request or none,
//! and never the one that is hidden in another (`/smuggled`). The fast path and hyper treat all of them alike.

mod cases;

use std::collections::HashMap;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tollgate_server::gateway::GatewayLimits;

use self::cases::Fate::{self, Forwarded, Refused};
use self::cases::{chunks, fields, framing, hosts, other_protocols, request_lines};
use super::recorder::{RecordedRequest, Recorder};
use super::{DEADLINE, OK, start_plain, start_with};

/// Who reads a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reader {
    /// The fast path, where the request is plain.
    FastPath,
    /// hyper, which has the connection since an earlier request.
    Hyper,
}

impl Reader {
    /// The path of a case. Both have the same length.
    fn path(self, number: usize) -> String {
        match self {
            Self::FastPath => format!("/fast-{number}"),
            Self::Hyper => format!("/hypr-{number}"),
        }
    }
}

/// Sends one request and returns when the gateway has answered it or closed the connection.
async fn send(address: std::net::SocketAddr, reader: Reader, bytes: Vec<u8>) -> Vec<u8> {
    let mut client = TcpStream::connect(address).await.unwrap();
    if reader == Reader::Hyper {
        let first = b"GET /first HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n";
        client.write_all(first).await.unwrap();
        let first = read_response(&mut client).await;
        assert!(first.starts_with(b"HTTP/1.1 200 OK"));
    }
    // The gateway may refuse and close before it has read all.
    let _refused = client.write_all(&bytes).await;
    read_response(&mut client).await
}

/// Reads a response, or until the connection is closed.
async fn read_response(client: &mut TcpStream) -> Vec<u8> {
    let mut answer = Vec::new();
    let mut buffer = [0; 4_096];
    loop {
        match timeout(DEADLINE, client.read(&mut buffer))
            .await
            .expect("an answer")
        {
            Ok(0) | Err(_) => return answer,
            Ok(len) => answer.extend(&buffer[..len]),
        }
        let text = String::from_utf8_lossy(&answer);
        if text.contains("\r\n\r\n") && !text.starts_with("HTTP/1.1 100") {
            return answer;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s_36_the_upstream_sees_one_well_formed_request_or_none() {
    let recorder = Recorder::start(OK).await;
    let mut limits = GatewayLimits::default();
    // What is incomplete is refused when its time is up.
    limits.header_timeout = Duration::from_millis(1_000);
    limits.body_timeout = Duration::from_millis(500);
    // hyper keeps its connections.
    limits.park_after = DEADLINE;
    let text = "limits: none\ngateway: { upstreams: { app: http://UPSTREAM }, routes: [{ upstream: app }] }";
    let gateway = start_with(text, recorder.address, limits, "").await;
    let mut cases = request_lines();
    cases.extend(fields());
    cases.extend(hosts());
    cases.extend(framing());
    cases.extend(chunks());
    cases.extend(other_protocols());
    assert!(cases.len() >= 200, "only {} cases", cases.len());
    let mut sending = JoinSet::new();
    let mut fates = HashMap::new();
    for (number, case) in cases.iter().enumerate() {
        for reader in [Reader::FastPath, Reader::Hyper] {
            let path = reader.path(number);
            let bytes = replace(&case.bytes, &path);
            fates.insert(path.clone(), (case.fate, bytes.escape_ascii().to_string()));
            let address = gateway.address;
            sending.spawn(async move { (path, send(address, reader, bytes).await) });
            // A listener has a queue of connections, which need not be full here.
            while sending.len() >= 64 {
                check_answer(&fates, sending.join_next().await.unwrap().unwrap());
            }
        }
    }
    while let Some(sent) = sending.join_next().await {
        check_answer(&fates, sent.unwrap());
    }
    let mut seen: HashMap<String, Vec<RecordedRequest>> = HashMap::new();
    for request in recorder.requests() {
        let path = request.target.split(['?', '%', ';']).next().unwrap();
        let path = path.trim_start_matches("/x").to_owned();
        seen.entry(path).or_default().push(request);
    }
    let firsts = seen.remove("/first").unwrap_or_default();
    assert_eq!(firsts.len(), cases.len(), "hyper has a connection for each");
    let mut complaints = Vec::new();
    for (path, (fate, bytes)) in &fates {
        let times = seen.get(path).map_or(0, Vec::len);
        if times != usize::from(*fate == Forwarded) {
            let shown: String = bytes.chars().take(200).collect();
            complaints.push(format!("{fate:?}, seen {times} times: {shown}"));
        }
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
    for number in 0..cases.len() {
        let read = |reader: Reader| {
            let path = reader.path(number);
            let requests = seen.get(&path).into_iter().flatten();
            let texts = requests.map(|one| without_id(one).replace(&path, "~"));
            texts.collect::<Vec<_>>()
        };
        assert_eq!(read(Reader::FastPath), read(Reader::Hyper), "case {number}");
    }
    seen.retain(|path, _| !fates.contains_key(path));
    assert!(seen.is_empty(), "smuggled: {seen:?}");
    gateway.running.stop().await;
}

/// A request as text, without its random id.
fn without_id(request: &RecordedRequest) -> String {
    let mut request = request.clone();
    request.fields.retain(|(name, _)| name != "x-request-id");
    format!("{request:?}")
}

/// Negative control: the comparison of the two readers sees a field that only one of them forwards.
#[test]
fn control_requests_with_other_fields_differ() {
    let field = |name: &str| (name.to_owned(), "1".to_owned());
    let request = |fields: &[&str]| RecordedRequest {
        fields: fields.iter().map(|name| field(name)).collect(),
        ..RecordedRequest::default()
    };
    let same = without_id(&request(&["host", "x-request-id"]));
    assert_eq!(same, without_id(&request(&["host"])));
    assert_ne!(same, without_id(&request(&["host", "x-a"])));
}

/// Ambiguous requests get 400 also if they arrive byte by byte, or behind another request.
#[tokio::test]
async fn s_36_ambiguous_requests_get_400() {
    let recorder = Recorder::start(OK).await;
    let gateway = start_plain(recorder.address).await;
    for fields in [
        "Content-Length: 0\r\nContent-Length: 0\r\n\r\n",
        "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "X: y\n\r\n",
    ] {
        let request = format!("POST /a HTTP/1.1\r\nHost: a\r\n{fields}");
        let behind = format!("GET /first HTTP/1.1\r\nHost: a\r\n\r\n{request}");
        for (bytes, piece_len) in [(&request, 1_000), (&request, 1), (&behind, 1_000)] {
            let mut client = TcpStream::connect(gateway.address).await.unwrap();
            client.set_nodelay(true).unwrap();
            for piece in bytes.as_bytes().chunks(piece_len) {
                // The gateway closes at the line that it refuses.
                let _closed = client.write_all(piece).await;
                tokio::task::yield_now().await;
            }
            let mut answer = Vec::new();
            let read = timeout(DEADLINE, client.read_to_end(&mut answer)).await;
            // What was sent behind the refused line may reset the connection after the answer.
            let _reset = read.expect("a closed connection");
            let answer = String::from_utf8_lossy(&answer);
            let answers = answer.matches("HTTP/1.1 ").count();
            let is_refused = answer.contains("HTTP/1.1 400 Bad Request");
            assert!(is_refused, "{piece_len} {bytes:?}: {answer}");
            assert_eq!(answers, if bytes == &behind { 2 } else { 1 }, "{answer}");
        }
    }
    assert!(recorder.requests().iter().all(|one| one.target == "/first"));
    gateway.running.stop().await;
}

/// A request that is forwarded is answered by the upstream; one that is refused gets a 4xx or nothing.
fn check_answer(fates: &HashMap<String, (Fate, String)>, (path, answer): (String, Vec<u8>)) {
    let (fate, bytes) = &fates[&path];
    let answer = String::from_utf8_lossy(&answer);
    let is_fine = match fate {
        Forwarded => answer.contains("HTTP/1.1 200 OK") || answer.starts_with("HTTP/1.0 200 OK"),
        // HTTP/2 frames, for what begins like HTTP/2.
        Refused => {
            answer.is_empty()
                || answer.starts_with("HTTP/1.1 4")
                || answer.starts_with('\0')
                || answer.starts_with("HTTP/1.0 4")
        }
    };
    let shown: String = bytes.chars().take(200).collect();
    assert!(is_fine, "{fate:?}: {shown}\ngot {answer}");
}

fn replace(bytes: &[u8], path: &str) -> Vec<u8> {
    let mut out = Vec::new();
    for byte in bytes {
        match byte {
            b'~' => out.extend(path.as_bytes()),
            byte => out.push(*byte),
        }
    }
    out
}
