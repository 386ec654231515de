//! An HTTP client with one connection that parses check responses. Must not know: which server it calls, which fault is injected.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;
use tollgate_testkit::history::{RecordedReply, RecordedVerdict, ReportedQuota};

/// The timeout of a connection and of each read.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A parsed response.
#[derive(Debug)]
pub(super) struct CheckResponse {
    pub(super) status: u16,
    pub(super) fields: Vec<String>,
    pub(super) body: Value,
}

impl CheckResponse {
    /// The value of a header field.
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then_some(value.trim())
        })
    }

    /// Whether the server decided without the store.
    pub(super) fn is_degraded(&self) -> bool {
        let said = self.body["degraded"].as_array();
        said.is_some_and(|said| said.iter().any(|word| word == "store"))
    }

    /// The response as a record of the history.
    pub(super) fn to_recorded(&self) -> RecordedReply {
        let nanos = |millis: &Value| Some(millis.as_u64()? * 1_000_000);
        let limit = &self.body["limits"][0];
        let quota = || {
            Some(ReportedQuota {
                limit: limit["limit"].as_u64()?,
                remaining: limit["remaining"].as_u64()?,
                reset_after: nanos(&limit["reset_after_ms"])?,
            })
        };
        RecordedReply {
            verdict: match self.status {
                200 => RecordedVerdict::Admitted,
                429 => RecordedVerdict::Denied,
                _ => RecordedVerdict::Failed,
            },
            is_degraded: self.is_degraded(),
            retry_after: nanos(&self.body["retry_after_ms"]),
            quota: quota(),
        }
    }
}

/// A client of one server.
pub(super) struct Client {
    server: SocketAddr,
    connection: Option<BufReader<TcpStream>>,
}

impl Client {
    pub(super) const fn new(server: SocketAddr) -> Self {
        Self {
            server,
            connection: None,
        }
    }

    /// Checks one unit on a key.
    pub(super) fn check(&mut self, key: &str) -> Option<CheckResponse> {
        self.post("/v1/check", &format!(r#"{{"key": "{key}"}}"#))
    }

    /// Sends a request. Returns `None` if the server is gone or does not answer.
    pub(super) fn post(&mut self, target: &str, body: &str) -> Option<CheckResponse> {
        let answer = self.try_post(target, body);
        if answer.is_none() {
            self.connection = None;
        }
        answer
    }

    fn try_post(&mut self, target: &str, body: &str) -> Option<CheckResponse> {
        if self.connection.is_none() {
            let stream = TcpStream::connect_timeout(&self.server, TIMEOUT).ok()?;
            stream.set_read_timeout(Some(TIMEOUT)).ok()?;
            stream.set_nodelay(true).ok()?;
            self.connection = Some(BufReader::new(stream));
        }
        let connection = self.connection.as_mut()?;
        let length = body.len();
        let text = format!(
            "POST {target} HTTP/1.1\r\nhost: test\r\ncontent-type: application/json\r\n\
             content-length: {length}\r\n\r\n{body}"
        );
        connection.get_mut().write_all(text.as_bytes()).ok()?;
        let mut fields = Vec::new();
        loop {
            let mut line = String::new();
            if connection.read_line(&mut line).ok()? == 0 {
                return None;
            }
            match line.trim_end() {
                "" => break,
                line => fields.push(line.to_owned()),
            }
        }
        let status = fields.first()?.split(' ').nth(1)?.parse().ok()?;
        let mut answer = CheckResponse {
            status,
            fields,
            body: Value::Null,
        };
        let length = answer.field("content-length")?.parse().ok()?;
        let mut body = vec![0; length];
        connection.read_exact(&mut body).ok()?;
        answer.body = serde_json::from_slice(&body).unwrap_or(Value::Null);
        Some(answer)
    }
}
