//! An upstream that records every request it gets, byte by byte, and says what is malformed. Must not know: the gateway.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// A request as it arrived.
#[derive(Clone, Debug, Default)]
pub(super) struct RecordedRequest {
    pub(super) method: String,
    pub(super) target: String,
    /// Names in lower case.
    pub(super) fields: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
    pub(super) trailers: Vec<(String, String)>,
}

impl RecordedRequest {
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        let mut found = self.fields.iter().filter(|(field, _)| field == name);
        let first = found.next().map(|(_, value)| &**value);
        assert!(found.next().is_none(), "{name} is there twice");
        first
    }
}

/// What an upstream has seen.
#[derive(Debug, Default)]
pub(super) struct Recorded {
    pub(super) requests: Vec<RecordedRequest>,
    /// What is no well-formed request, and why.
    pub(super) malformed: Vec<String>,
    pub(super) connections: usize,
}

/// A recording upstream.
pub(super) struct Recorder {
    pub(super) address: SocketAddr,
    pub(super) seen: Arc<Mutex<Recorded>>,
    /// Ends with the value.
    _tasks: JoinSet<()>,
}

impl Recorder {
    /// Answers every request with these bytes.
    pub(super) async fn start(answer: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self::serve(listener, answer)
    }

    pub(super) fn serve(listener: TcpListener, answer: &'static str) -> Self {
        let address = listener.local_addr().unwrap();
        let seen = Arc::<Mutex<Recorded>>::default();
        let mut tasks = JoinSet::new();
        let recorded = Arc::clone(&seen);
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                recorded.lock().unwrap().connections += 1;
                connections.spawn(serve_connection(stream, Arc::clone(&recorded), answer));
            }
        });
        Self {
            address,
            seen,
            _tasks: tasks,
        }
    }

    pub(super) fn requests(&self) -> Vec<RecordedRequest> {
        let seen = self.seen.lock().unwrap();
        assert_eq!(seen.malformed, Vec::<String>::new());
        seen.requests.clone()
    }

    /// The only request so far.
    pub(super) fn only_request(&self) -> RecordedRequest {
        let requests = self.requests();
        assert_eq!(requests.len(), 1, "{requests:#?}");
        requests.into_iter().next().unwrap()
    }
}

async fn serve_connection(stream: TcpStream, seen: Arc<Mutex<Recorded>>, answer: &str) {
    let mut stream = BufReader::new(stream);
    loop {
        match read_request(&mut stream).await {
            Ok(Some(request)) => {
                seen.lock().unwrap().requests.push(request);
                if stream.write_all(answer.as_bytes()).await.is_err() {
                    return;
                }
            }
            Ok(None) => return,
            Err(reason) => {
                seen.lock().unwrap().malformed.push(reason);
                return;
            }
        }
    }
}

/// The next line without its CRLF. `None` at the end of the connection.
async fn line(stream: &mut BufReader<TcpStream>) -> Result<Option<String>, String> {
    let mut bytes = Vec::new();
    match stream.read_until(b'\n', &mut bytes).await {
        Ok(0) | Err(_) => return Ok(None),
        Ok(_) => {}
    }
    let text = bytes.strip_suffix(b"\r\n");
    let text = text.ok_or_else(|| {
        format!(
            "a line without CRLF: {:?}",
            bytes.escape_ascii().to_string()
        )
    })?;
    let is_text = |byte: &u8| *byte == b'\t' || (b' '..=b'~').contains(byte) || *byte >= 0x80;
    match text.iter().all(is_text) {
        true => Ok(Some(String::from_utf8_lossy(text).into_owned())),
        false => Err(format!("control characters: {}", text.escape_ascii())),
    }
}

async fn fields(stream: &mut BufReader<TcpStream>) -> Result<Vec<(String, String)>, String> {
    let mut fields = Vec::new();
    loop {
        let Some(line) = line(stream).await? else {
            return Err("a head that ends early".to_owned());
        };
        if line.is_empty() {
            return Ok(fields);
        }
        let (name, value) = line
            .split_once(':')
            .ok_or_else(|| format!("no colon: {line}"))?;
        let is_token =
            |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        if name.is_empty() || !name.bytes().all(is_token) {
            return Err(format!("a name that is no token: {line}"));
        }
        fields.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
}

/// Reads one request as a strict server does.
async fn read_request(
    stream: &mut BufReader<TcpStream>,
) -> Result<Option<RecordedRequest>, String> {
    let Some(first) = line(stream).await? else {
        return Ok(None);
    };
    let parts: Vec<&str> = first.split(' ').collect();
    let [method, target, "HTTP/1.1"] = parts[..] else {
        return Err(format!("no request line: {first}"));
    };
    let is_target =
        target.starts_with('/') && target.bytes().all(|byte| (b'!'..=b'~').contains(&byte));
    if !is_target || method.is_empty() {
        return Err(format!("no request line: {first}"));
    }
    let fields = fields(stream).await?;
    let values = |name: &str| -> Vec<&str> {
        let found = fields.iter().filter(|(field, _)| field == name);
        found.map(|(_, value)| &**value).collect()
    };
    if values("host").len() != 1 {
        return Err(format!("not one Host: {first} {fields:?}"));
    }
    let (lengths, codings) = (values("content-length"), values("transfer-encoding"));
    let mut request = RecordedRequest {
        method: method.to_owned(),
        target: target.to_owned(),
        ..RecordedRequest::default()
    };
    match (&lengths[..], &codings[..]) {
        ([], []) => {}
        ([length], []) => {
            let length = length
                .parse::<usize>()
                .map_err(|error| format!("a length: {length}: {error}"))?;
            request.body = vec![0; length];
            if stream.read_exact(&mut request.body).await.is_err() {
                // The client was cut off, and so are we.
                return Ok(None);
            }
        }
        ([], ["chunked"]) => match chunked(stream).await? {
            Some((body, trailers)) => (request.body, request.trailers) = (body, trailers),
            None => return Ok(None),
        },
        other => return Err(format!("framing: {other:?}")),
    }
    request.fields = fields;
    Ok(Some(request))
}

type ChunkedBody = (Vec<u8>, Vec<(String, String)>);

async fn chunked(stream: &mut BufReader<TcpStream>) -> Result<Option<ChunkedBody>, String> {
    let mut body = Vec::new();
    loop {
        let Some(size) = line(stream).await? else {
            return Ok(None);
        };
        let size = usize::from_str_radix(&size, 16)
            .map_err(|error| format!("a chunk size: {size}: {error}"))?;
        if size == 0 {
            return Ok(Some((body, fields(stream).await?)));
        }
        let mut chunk = vec![0; size];
        if stream.read_exact(&mut chunk).await.is_err() {
            return Ok(None);
        }
        body.extend(chunk);
        if line(stream).await?.is_none() {
            return Ok(None);
        }
    }
}

/// Negative control: what is malformed is found.
#[tokio::test]
async fn control_the_recorder_finds_malformed_requests() {
    for bad in [
        "GET / HTTP/1.1\nHost: a\n\n",
        "GET / HTTP/1.0\r\nHost: a\r\n\r\n",
        "GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost : a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nContent-Length: 0\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1;x\r\na\r\n0\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX: \u{0}\r\n\r\n",
    ] {
        let recorder = Recorder::start("HTTP/1.1 204 No Content\r\n\r\n").await;
        let mut client = TcpStream::connect(recorder.address).await.unwrap();
        client.write_all(bad.as_bytes()).await.unwrap();
        client.shutdown().await.unwrap();
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).await.unwrap();
        let seen = recorder.seen.lock().unwrap();
        assert_eq!(
            (seen.requests.len(), seen.malformed.len()),
            (0, 1),
            "{bad:?}"
        );
    }
}
