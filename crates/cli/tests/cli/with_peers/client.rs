//! An HTTP client that sends exact bytes from a chosen source address. Must not know: which server it calls.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;
use tokio::net::TcpSocket;

/// Longer than any step takes, so only a hang reaches it.
pub(super) const DEADLINE: Duration = Duration::from_secs(60);

/// A complete response.
#[derive(Debug)]
pub(super) struct ParsedResponse {
    pub(super) status: u16,
    head: String,
    pub(super) body: String,
}

impl ParsedResponse {
    /// The value of a header field. Names are case-insensitive.
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then_some(value.trim())
        })
    }

    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// One request.
#[derive(Clone, Debug)]
pub(super) struct RawRequest {
    from: Ipv4Addr,
    head: String,
    body: &'static str,
}

impl RawRequest {
    pub(super) fn get(target: &str) -> Self {
        Self {
            from: Ipv4Addr::LOCALHOST,
            head: format!("GET {target} HTTP/1.1\r\nconnection: close\r\n"),
            body: "",
        }
    }

    pub(super) fn post(target: &str, body: &'static str) -> Self {
        let length = body.len();
        Self {
            from: Ipv4Addr::LOCALHOST,
            head: format!(
                "POST {target} HTTP/1.1\r\nconnection: close\r\ncontent-length: {length}\r\n"
            ),
            body,
        }
    }

    pub(super) fn with(mut self, name: &str, value: &str) -> Self {
        self.head += &format!("{name}: {value}\r\n");
        self
    }

    /// The same from another source address in 127.0.0.0/8.
    pub(super) fn from(mut self, last: u8) -> Self {
        self.from = Ipv4Addr::new(127, 0, 0, last);
        self
    }

    /// Sends the request. Returns `None` if the connection was refused or closed without a response.
    pub(super) fn try_ask(&self, to: SocketAddr) -> Option<ParsedResponse> {
        let mut stream = connect(self.from, to)?;
        let host = if self.head.contains("\r\nhost: ") {
            ""
        } else {
            "host: test\r\n"
        };
        let text = format!("{}{host}\r\n{}", self.head, self.body);
        stream.write_all(text.as_bytes()).ok()?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).ok()?;
        let answer = String::from_utf8(answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n")?;
        let status = head.split(' ').nth(1)?.parse().unwrap();
        Some(ParsedResponse {
            status,
            head: head.to_owned(),
            body: body.to_owned(),
        })
    }

    pub(super) fn ask(&self, to: SocketAddr) -> ParsedResponse {
        self.try_ask(to)
            .unwrap_or_else(|| panic!("no answer from {to} to {self:?}"))
    }
}

/// Connects from a chosen source address, which std does not support.
fn connect(from: Ipv4Addr, to: SocketAddr) -> Option<TcpStream> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .unwrap();
    let stream = runtime.block_on(async {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from((from, 0))).unwrap();
        socket.connect(to).await.ok()?.into_std().ok()
    })?;
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    Some(stream)
}
