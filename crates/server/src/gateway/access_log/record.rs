//! What the access log knows of one request. The line is written when the record is dropped: after the response, or when the
//! client or the upstream ended it early.
//!
//! Must not know: formats, how requests are forwarded.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hyper::header::{HOST, HeaderMap, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode, Uri, Version};
use tollgate_core::Timestamp;
use tollgate_engine::control::UtcTime;
use tollgate_tower::DecisionInfo;

use super::TimedAccessLog;
use super::render::{LogValues, render};
use super::variable::{NamedVariable, Variable, is_secret};

/// nginx's status for a client that is gone before its response.
const CLIENT_CLOSED_REQUEST: u16 = 499;
const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// One request, until its response has ended.
#[derive(Debug)]
pub(in crate::gateway) struct RequestRecord {
    log: Arc<TimedAccessLog>,
    received_at: Timestamp,
    peer: IpAddr,
    client: IpAddr,
    has_tls: bool,
    request: Option<RequestLine>,
    /// The fields that the format names.
    request_fields: Vec<Option<HeaderValue>>,
    response_fields: Vec<Option<HeaderValue>>,
    host: Option<HeaderValue>,
    id: Option<HeaderValue>,
    status: u16,
    body_len: u64,
    is_complete: bool,
    decision: Option<DecisionInfo>,
    exchange: Arc<ExchangeRecord>,
}

/// The first line of a request, as the client sent it.
#[derive(Debug)]
struct RequestLine {
    method: Method,
    target: Uri,
    version: Version,
}

/// What the forwarder adds: the route, the upstream and its times.
#[derive(Debug, Default)]
pub(in crate::gateway) struct ExchangeRecord(Mutex<Exchange>);

#[derive(Clone, Debug, Default)]
struct Exchange {
    route: Option<Box<str>>,
    /// One address for each attempt, separated by commas.
    addresses: String,
    started_at: Option<Timestamp>,
    head_at: Option<Timestamp>,
    status: Option<StatusCode>,
}

impl ExchangeRecord {
    pub(in crate::gateway) fn set_route(&self, label: &str) {
        self.lock().route = Some(label.into());
    }

    /// Records that the request is sent to an address.
    pub(in crate::gateway) fn start_attempt(&self, address: &str, now: Timestamp) {
        let mut exchange = self.lock();
        if !exchange.addresses.is_empty() {
            exchange.addresses.push_str(", ");
        }
        exchange.addresses.push_str(address);
        exchange.started_at.get_or_insert(now);
    }

    /// Records the head of the upstream's response.
    pub(in crate::gateway) fn set_response(&self, status: StatusCode, now: Timestamp) {
        let mut exchange = self.lock();
        (exchange.status, exchange.head_at) = (Some(status), Some(now));
    }

    fn lock(&self) -> MutexGuard<'_, Exchange> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RequestRecord {
    /// Starts the record of a request. Call it before the request is normalized.
    pub(in crate::gateway) fn start(
        log: &Arc<TimedAccessLog>,
        (peer, client): (IpAddr, IpAddr),
        has_tls: bool,
        head: &Parts,
        id: &HeaderValue,
    ) -> Box<Self> {
        let mut record = Self::empty(log, (peer, client), has_tls);
        // HTTP/2 has scheme and authority in fields of their own, which the target does not show.
        let path = head
            .uri
            .path_and_query()
            .filter(|_| head.version == Version::HTTP_2);
        record.request = Some(RequestLine {
            method: head.method.clone(),
            target: path.cloned().map_or_else(|| head.uri.clone(), Uri::from),
            version: head.version,
        });
        let names = log.log.format.request_fields.iter();
        record.request_fields = names.map(|name| head.headers.get(name).cloned()).collect();
        let authority = || HeaderValue::from_str(head.uri.authority()?.as_str()).ok();
        record.host = head.headers.get(HOST).cloned().or_else(authority);
        record.id = Some(id.clone());
        record
    }

    /// Writes the line of a request that was refused before it could be read.
    pub(in crate::gateway) fn write_unreadable(
        log: &Arc<TimedAccessLog>,
        peer: IpAddr,
        has_tls: bool,
        status: StatusCode,
    ) {
        let mut record = Self::empty(log, (peer, peer), has_tls);
        record.status = status.as_u16();
    }

    fn empty(
        log: &Arc<TimedAccessLog>,
        (peer, client): (IpAddr, IpAddr),
        has_tls: bool,
    ) -> Box<Self> {
        Box::new(Self {
            received_at: log.now(),
            log: Arc::clone(log),
            peer: peer.to_canonical(),
            client: client.to_canonical(),
            has_tls,
            request: None,
            request_fields: Vec::new(),
            response_fields: Vec::new(),
            host: None,
            id: None,
            status: CLIENT_CLOSED_REQUEST,
            body_len: 0,
            is_complete: false,
            decision: None,
            exchange: Arc::default(),
        })
    }

    /// Where the forwarder records its part.
    pub(in crate::gateway) const fn exchange(&self) -> &Arc<ExchangeRecord> {
        &self.exchange
    }

    /// Records the head of the response.
    pub(in crate::gateway) fn set_response(
        &mut self,
        status: StatusCode,
        headers: &HeaderMap,
        decision: Option<DecisionInfo>,
    ) {
        self.status = status.as_u16();
        let names = self.log.log.format.response_fields.iter();
        self.response_fields = names.map(|name| headers.get(name).cloned()).collect();
        self.decision = decision;
    }

    pub(super) const fn add_body_len(&mut self, len: u64) {
        self.body_len = self.body_len.saturating_add(len);
    }

    pub(super) const fn set_complete(&mut self) {
        self.is_complete = true;
    }
}

impl Drop for RequestRecord {
    fn drop(&mut self) {
        let values = RecordValues {
            record: self,
            exchange: self.exchange.lock().clone(),
            now: self.log.now(),
        };
        let line = render(&self.log.log.format, &values);
        self.log.log.output.write_line(&line);
    }
}

/// The values of a record at its end.
struct RecordValues<'a> {
    record: &'a RequestRecord,
    exchange: Exchange,
    now: Timestamp,
}

impl RecordValues<'_> {
    fn named(&self, variable: NamedVariable) -> Option<Cow<'_, [u8]>> {
        let (record, exchange) = (self.record, &self.exchange);
        let text = match variable {
            NamedVariable::RemoteAddr => record.client.to_string(),
            NamedVariable::PeerAddr => record.peer.to_string(),
            // The gateway does not authenticate.
            NamedVariable::RemoteUser => return None,
            NamedVariable::TimeLocal => local_time(self.now),
            NamedVariable::TimeIso8601 => UtcTime(self.now).to_string().replace('Z', "+00:00"),
            NamedVariable::Msec => seconds(self.now.as_nanos()),
            NamedVariable::Request => {
                let line = record.request.as_ref()?;
                format!("{} {} {:?}", line.method, line.target, line.version)
            }
            NamedVariable::RequestMethod => record.request.as_ref()?.method.to_string(),
            NamedVariable::RequestUri => record.request.as_ref()?.target.to_string(),
            NamedVariable::Scheme if record.has_tls => "https".to_owned(),
            NamedVariable::Scheme => "http".to_owned(),
            NamedVariable::Host => return bytes(record.host.as_ref()),
            NamedVariable::ServerProtocol => format!("{:?}", record.request.as_ref()?.version),
            NamedVariable::Status => record.status.to_string(),
            NamedVariable::BodyBytesSent => record.body_len.to_string(),
            NamedVariable::RequestTime => elapsed(record.received_at, self.now),
            NamedVariable::RequestId => return bytes(record.id.as_ref()),
            NamedVariable::RequestCompletion if record.is_complete => "OK".to_owned(),
            NamedVariable::RequestCompletion => return None,
            NamedVariable::UpstreamAddr => exchange.addresses.clone(),
            NamedVariable::UpstreamStatus => exchange.status?.as_u16().to_string(),
            NamedVariable::UpstreamHeaderTime => elapsed(exchange.started_at?, exchange.head_at?),
            NamedVariable::UpstreamResponseTime => elapsed(exchange.started_at?, self.now),
            NamedVariable::Decision => record.decision.as_ref()?.outcome().to_owned(),
            NamedVariable::Reason => record.decision.as_ref()?.reason()?.to_owned(),
            NamedVariable::Limit => record.decision.as_ref()?.limit()?.to_owned(),
            NamedVariable::Wait => {
                let wait = record.decision.as_ref()?.wait();
                seconds(u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX))
            }
            NamedVariable::Route => exchange.route.as_deref()?.to_owned(),
        };
        Some(Cow::Owned(text.into_bytes()))
    }

    fn field<'a>(
        &self,
        fields: &'a [Option<HeaderValue>],
        names: &[hyper::header::HeaderName],
        index: usize,
    ) -> Option<Cow<'a, [u8]>> {
        let value = fields.get(index)?.as_ref()?;
        match names.get(index).is_some_and(is_secret) {
            true => Some(Cow::Borrowed(b"[redacted]")),
            false => Some(Cow::Borrowed(value.as_bytes())),
        }
    }
}

impl LogValues for RecordValues<'_> {
    fn value(&self, variable: &Variable) -> Option<Cow<'_, [u8]>> {
        let format = &self.record.log.log.format;
        match variable {
            Variable::Named(named) => self.named(*named),
            Variable::RequestField(index) => {
                let (fields, names) = (&self.record.request_fields, &format.request_fields);
                self.field(fields, names, *index)
            }
            Variable::ResponseField(index) => {
                let (fields, names) = (&self.record.response_fields, &format.response_fields);
                self.field(fields, names, *index)
            }
        }
    }
}

fn bytes(value: Option<&HeaderValue>) -> Option<Cow<'_, [u8]>> {
    value.map(|value| Cow::Borrowed(value.as_bytes()))
}

/// Seconds with milliseconds, as nginx writes them.
fn seconds(nanos: u64) -> String {
    let millis = nanos / 1_000_000;
    format!("{}.{:03}", millis / 1_000, millis % 1_000)
}

/// A clock that goes back measures nothing.
fn elapsed(from: Timestamp, to: Timestamp) -> String {
    seconds(to.as_nanos().saturating_sub(from.as_nanos()))
}

/// The time as nginx writes it, in UTC: `18/Nov/2026:01:24:40 +0000`.
fn local_time(time: Timestamp) -> String {
    let iso = UtcTime(time).to_string();
    let (date, clock) = iso.split_once('T').unwrap_or((&iso, ""));
    let mut parts = date.split('-');
    let (year, month, day) = (
        parts.next().unwrap_or_default(),
        parts.next().unwrap_or_default(),
        parts.next().unwrap_or_default(),
    );
    let month = month.parse::<usize>().ok();
    let month = month.and_then(|month| MONTHS.get(month.checked_sub(1)?));
    let (month, clock) = (month.unwrap_or(&"Jan"), clock.trim_end_matches('Z'));
    format!("{day}/{month}/{year}:{clock} +0000")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_nginx_does() {
        let time = Timestamp::from_secs(1_795_000_000);
        assert_eq!(local_time(time), "18/Nov/2026:11:06:40 +0000");
        assert_eq!(seconds(1_234_999_999), "1.234");
        assert_eq!(elapsed(time, Timestamp::from_secs(5)), "0.000");
    }
}
