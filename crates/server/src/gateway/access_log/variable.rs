//! The variables of an access log format: nginx's names for what nginx has too, and `tollgate_` for the decision.
//!
//! Must not know: how a format is parsed, how values are escaped.

use hyper::header::HeaderName;

/// A variable of a format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Variable {
    /// One of a fixed name.
    Named(NamedVariable),
    /// A header field of the request, by its place among those of the format.
    RequestField(usize),
    /// A header field of the response.
    ResponseField(usize),
}

/// A variable of a fixed name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NamedVariable {
    RemoteAddr,
    PeerAddr,
    RemoteUser,
    TimeLocal,
    TimeIso8601,
    Msec,
    Request,
    RequestMethod,
    RequestUri,
    Scheme,
    Host,
    ServerProtocol,
    Status,
    BodyBytesSent,
    RequestTime,
    RequestId,
    RequestCompletion,
    UpstreamAddr,
    UpstreamStatus,
    UpstreamHeaderTime,
    UpstreamResponseTime,
    Decision,
    Reason,
    Limit,
    Wait,
    Route,
}

/// All names. `docs/gateway.md` has the same table.
pub(super) const NAMES: [(&str, NamedVariable); 26] = [
    ("remote_addr", NamedVariable::RemoteAddr),
    ("realip_remote_addr", NamedVariable::PeerAddr),
    ("remote_user", NamedVariable::RemoteUser),
    ("time_local", NamedVariable::TimeLocal),
    ("time_iso8601", NamedVariable::TimeIso8601),
    ("msec", NamedVariable::Msec),
    ("request", NamedVariable::Request),
    ("request_method", NamedVariable::RequestMethod),
    ("request_uri", NamedVariable::RequestUri),
    ("scheme", NamedVariable::Scheme),
    ("host", NamedVariable::Host),
    ("server_protocol", NamedVariable::ServerProtocol),
    ("status", NamedVariable::Status),
    ("body_bytes_sent", NamedVariable::BodyBytesSent),
    ("request_time", NamedVariable::RequestTime),
    ("request_id", NamedVariable::RequestId),
    ("request_completion", NamedVariable::RequestCompletion),
    ("upstream_addr", NamedVariable::UpstreamAddr),
    ("upstream_status", NamedVariable::UpstreamStatus),
    ("upstream_header_time", NamedVariable::UpstreamHeaderTime),
    (
        "upstream_response_time",
        NamedVariable::UpstreamResponseTime,
    ),
    ("tollgate_decision", NamedVariable::Decision),
    ("tollgate_reason", NamedVariable::Reason),
    ("tollgate_limit", NamedVariable::Limit),
    ("tollgate_wait", NamedVariable::Wait),
    ("tollgate_route", NamedVariable::Route),
];

/// Fields whose values are credentials. They are logged as `[redacted]`.
const SECRET_FIELDS: [&str; 7] = [
    "authorization",
    "cookie",
    "proxy-authorization",
    "set-cookie",
    "x-api-key",
    "api-key",
    "x-auth-token",
];

impl NamedVariable {
    pub(super) fn parse(name: &str) -> Option<Self> {
        let mut known = NAMES.iter();
        known
            .find(|(known, _)| *known == name)
            .map(|(_, variable)| *variable)
    }

    /// Whether its values are numbers, so that JSON needs no quotes around them.
    pub(super) const fn is_number(self) -> bool {
        matches!(
            self,
            Self::Msec
                | Self::Status
                | Self::BodyBytesSent
                | Self::RequestTime
                | Self::UpstreamStatus
                | Self::UpstreamHeaderTime
                | Self::UpstreamResponseTime
                | Self::Wait
        )
    }
}

/// Whether the values of a field are credentials.
pub(super) fn is_secret(name: &HeaderName) -> bool {
    SECRET_FIELDS.contains(&name.as_str())
}
