//! A minimal gRPC client, with messages encoded and decoded by hand.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use h2::client::SendRequest;
use hyper::{HeaderMap, Request};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Far above any duration here; only a hang reaches it.
const DEADLINE: Duration = Duration::from_secs(30);

pub(crate) const SHOULD_RATE_LIMIT: &str =
    "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

pub(crate) struct Client {
    send: SendRequest<Bytes>,
    connection: JoinHandle<Result<(), h2::Error>>,
}

/// The result of a call.
#[derive(Debug)]
pub(crate) struct CallResult {
    pub(crate) http: u16,
    pub(crate) status: Option<i32>,
    pub(crate) message: String,
    pub(crate) answers: Vec<Bytes>,
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        let (send, connection) = h2::client::handshake(stream).await.unwrap();
        #[expect(
            clippy::disallowed_methods,
            reason = "the client keeps the handle and looks at how it ended"
        )]
        let connection = tokio::spawn(connection);
        Self { send, connection }
    }

    /// Sends one message to a method and returns everything until the end.
    pub(crate) async fn call(&mut self, path: &str, message: &[u8]) -> CallResult {
        self.call_with(path, framed(message).into(), "application/grpc", true)
            .await
            .unwrap()
    }

    /// Sends raw bytes to a path.
    pub(crate) async fn call_with(
        &mut self,
        path: &str,
        body: Bytes,
        content_type: &str,
        is_all: bool,
    ) -> Result<CallResult, h2::Error> {
        let request = Request::post(format!("http://localhost{path}"))
            .header("content-type", content_type)
            .header("te", "trailers")
            .body(())
            .unwrap();
        let mut ready = self.send.clone().ready().await?;
        let (response, mut stream) = ready.send_request(request, false)?;
        stream.send_data(body, is_all)?;
        timeout(DEADLINE, ending(response))
            .await
            .expect("an answer")
    }

    /// Starts a call and leaves it open.
    pub(crate) async fn open(
        &mut self,
        path: &str,
    ) -> (h2::client::ResponseFuture, h2::SendStream<Bytes>) {
        let request = Request::post(format!("http://localhost{path}"))
            .header("content-type", "application/grpc")
            .body(())
            .unwrap();
        let mut ready = self.send.clone().ready().await.unwrap();
        ready.send_request(request, false).unwrap()
    }

    /// Sends a `RateLimitRequest` and returns its response.
    pub(crate) async fn should_rate_limit(&mut self, request: &[u8]) -> RlsResponse {
        let ending = self.call(SHOULD_RATE_LIMIT, request).await;
        assert_eq!((ending.http, ending.status), (200, Some(0)), "{ending:?}");
        assert_eq!(ending.answers.len(), 1);
        RlsResponse::read(&ending.answers[0])
    }

    /// Sends a `RateLimitRequest` and returns the code and message of its error.
    pub(crate) async fn expect_error(&mut self, request: &[u8]) -> (i32, String) {
        let ending = self.call(SHOULD_RATE_LIMIT, request).await;
        assert_eq!((ending.http, ending.answers.len()), (200, 0), "{ending:?}");
        (ending.status.unwrap(), ending.message)
    }

    /// Waits until the connection has ended.
    pub(crate) async fn wait_closed(self) -> Result<(), h2::Error> {
        drop(self.send);
        timeout(DEADLINE, self.connection).await.unwrap().unwrap()
    }
}

pub(crate) async fn ending(response: h2::client::ResponseFuture) -> Result<CallResult, h2::Error> {
    let (head, mut body) = response.await?.into_parts();
    let mut all = BytesMut::new();
    while let Some(bytes) = body.data().await {
        let bytes = bytes?;
        body.flow_control().release_capacity(bytes.len())?;
        all.extend_from_slice(&bytes);
    }
    let trailers = body.trailers().await?;
    let fields = trailers.as_ref().unwrap_or(&head.headers);
    Ok(CallResult {
        http: head.status.as_u16(),
        status: field(fields, "grpc-status").map(|text| text.parse().unwrap()),
        message: field(fields, "grpc-message").unwrap_or_default(),
        answers: messages(all.freeze()),
    })
}

fn field(fields: &HeaderMap, name: &str) -> Option<String> {
    fields
        .get(name)
        .map(|value| value.to_str().unwrap().to_owned())
}

/// A message with its prefix.
pub(crate) fn framed(message: &[u8]) -> Vec<u8> {
    let mut out = vec![0];
    out.extend_from_slice(&u32::try_from(message.len()).unwrap().to_be_bytes());
    out.extend_from_slice(message);
    out
}

pub(crate) fn messages(mut bytes: Bytes) -> Vec<Bytes> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let prefix = bytes.split_to(5);
        let length = u32::from_be_bytes(prefix[1..].try_into().unwrap());
        all.push(bytes.split_to(length as usize));
    }
    all
}

pub(crate) fn varint(mut number: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while number >= 0x80 {
        out.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    out.push(number.to_le_bytes()[0]);
    out
}

/// A length-delimited field.
pub(crate) fn bytes_field(number: u64, bytes: &[u8]) -> Vec<u8> {
    let mut out = varint(number << 3 | 2);
    out.extend(varint(bytes.len() as u64));
    out.extend_from_slice(bytes);
    out
}

/// A varint field.
pub(crate) fn number_field(number: u64, value: u64) -> Vec<u8> {
    let mut out = varint(number << 3);
    out.extend(varint(value));
    out
}

/// A descriptor under construction.
#[derive(Clone, Default)]
pub(crate) struct Descriptor(Vec<u8>);

impl Descriptor {
    pub(crate) fn new(entries: &[(&str, &str)]) -> Self {
        let entry = |(key, value): &(&str, &str)| {
            let entry = [
                bytes_field(1, key.as_bytes()),
                bytes_field(2, value.as_bytes()),
            ];
            bytes_field(1, &entry.concat())
        };
        Self(entries.iter().flat_map(entry).collect())
    }

    pub(crate) fn hits(mut self, hits: u64) -> Self {
        // Present and empty means zero.
        let value = if hits == 0 {
            Vec::new()
        } else {
            number_field(1, hits)
        };
        self.0.extend(bytes_field(3, &value));
        self
    }

    pub(crate) fn refund(mut self) -> Self {
        self.0.extend(number_field(4, 1));
        self
    }

    pub(crate) fn limit(mut self, requests: u64, unit: u64) -> Self {
        let limit = [number_field(1, requests), number_field(2, unit)];
        self.0.extend(bytes_field(2, &limit.concat()));
        self
    }
}

/// A `RateLimitRequest`.
pub(crate) fn request(domain: &str, descriptors: &[Descriptor], hits: u64) -> Vec<u8> {
    let mut out = bytes_field(1, domain.as_bytes());
    for descriptor in descriptors {
        out.extend(bytes_field(2, &descriptor.0));
    }
    if hits > 0 {
        out.extend(number_field(3, hits));
    }
    out
}

/// A message as its fields.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum FieldValue {
    Number(u64),
    Bytes(Bytes),
    Double(f64),
}

pub(crate) fn read(mut bytes: Bytes) -> Vec<(u64, FieldValue)> {
    let number = |bytes: &mut Bytes| {
        let (mut number, mut shift) = (0, 0);
        loop {
            let byte = bytes.split_to(1)[0];
            number |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                return number;
            }
        }
    };
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let tag = number(&mut bytes);
        let value = match tag & 7 {
            0 => FieldValue::Number(number(&mut bytes)),
            1 => FieldValue::Double(f64::from_le_bytes(
                bytes.split_to(8)[..].try_into().unwrap(),
            )),
            2 => {
                let length = number(&mut bytes);
                FieldValue::Bytes(bytes.split_to(usize::try_from(length).unwrap()))
            }
            other => panic!("type {other}"),
        };
        fields.push((tag >> 3, value));
    }
    fields
}

/// A `RateLimitResponse`.
#[derive(Debug, Default)]
pub(crate) struct RlsResponse {
    pub(crate) overall: u64,
    pub(crate) statuses: Vec<RlsDescriptorResult>,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) metadata: Option<Bytes>,
}

/// `(code, limit, remaining, seconds)`; a limit is `(requests, unit, name)`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RlsDescriptorResult {
    pub(crate) code: u64,
    pub(crate) limit: Option<(u64, u64, String)>,
    pub(crate) remaining: u64,
    pub(crate) reset: Option<u64>,
}

fn text(bytes: &Bytes) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

impl RlsResponse {
    pub(crate) fn read(bytes: &Bytes) -> Self {
        let mut response = Self::default();
        for field in read(bytes.clone()) {
            match field {
                (1, FieldValue::Number(code)) => response.overall = code,
                (2, FieldValue::Bytes(bytes)) => {
                    response.statuses.push(RlsDescriptorResult::read(bytes));
                }
                (3, FieldValue::Bytes(bytes)) => {
                    let parts = read(bytes);
                    let [(1, FieldValue::Bytes(key)), (2, FieldValue::Bytes(value))] = &parts[..]
                    else {
                        panic!("{parts:?}");
                    };
                    response.headers.push((text(key), text(value)));
                }
                (6, FieldValue::Bytes(bytes)) => response.metadata = Some(bytes),
                other => panic!("{other:?}"),
            }
        }
        response
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| &**value)
    }

    pub(crate) fn codes(&self) -> Vec<u64> {
        self.statuses.iter().map(|status| status.code).collect()
    }
}

impl RlsDescriptorResult {
    fn read(bytes: Bytes) -> Self {
        let mut status = Self::default();
        for field in read(bytes) {
            match field {
                (1, FieldValue::Number(code)) => status.code = code,
                (2, FieldValue::Bytes(bytes)) => {
                    let limit = status.limit.get_or_insert_default();
                    for field in read(bytes) {
                        match field {
                            (1, FieldValue::Number(requests)) => limit.0 = requests,
                            (2, FieldValue::Number(unit)) => limit.1 = unit,
                            (3, FieldValue::Bytes(name)) => limit.2 = text(&name),
                            other => panic!("{other:?}"),
                        }
                    }
                }
                (3, FieldValue::Number(remaining)) => status.remaining = remaining,
                (4, FieldValue::Bytes(bytes)) => {
                    let seconds = read(bytes).into_iter().map(|field| match field {
                        (1, FieldValue::Number(seconds)) => seconds,
                        other => panic!("{other:?}"),
                    });
                    status.reset = Some(seconds.sum());
                }
                other => panic!("{other:?}"),
            }
        }
        status
    }
}
