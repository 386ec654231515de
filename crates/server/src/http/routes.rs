//! The table of endpoints: where each is, by which methods, and how long a body it reads.
//!
//! Must not know: what an endpoint answers.

use hyper::Method;

use crate::http::forward_auth::Gateway;

/// The largest body of a request, of many questions, and of a report, in bytes.
const QUESTION: usize = 8_192;
const QUESTIONS: usize = 262_144;
const REPORT: usize = 16_384;
/// What Envoy asks may be as long here as over gRPC.
const ENVOYS: usize = 65_536;

/// What can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ApiEndpoint {
    /// May this request proceed?
    Check,
    /// The same of several.
    Batch,
    /// A check that takes places.
    Acquire,
    /// A check whose cost is settled later.
    Reserve,
    /// What a request still owes, and what came of it.
    Report(TicketReportKind),
    /// A gateway asks about a request that it holds.
    ForwardAuth(Gateway),
    /// Where a key stands.
    Status,
    /// Which limits there are.
    Limits,
    /// What Envoy asks, as JSON.
    RlsJson,
    /// The description of all this.
    OpenApi,
    /// Whether the server is there.
    Health,
    /// The same, as probes of envoyproxy/ratelimit ask.
    EnvoyHealth,
    /// Whether requests should be sent to it.
    Ready,
    /// What a newcomer reads.
    FrontPage,
}

impl ApiEndpoint {
    /// Whether it is a question about requests, so that the time it takes is of interest.
    pub(crate) const fn is_decision(self) -> bool {
        matches!(
            self,
            Self::Check
                | Self::Batch
                | Self::Acquire
                | Self::Reserve
                | Self::ForwardAuth(_)
                | Self::RlsJson
                | Self::Status
        )
    }
}

/// What is reported about a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TicketReportKind {
    /// The upstream's response.
    Respond,
    /// The real cost.
    Settle,
    /// The work did not happen.
    Cancel,
    /// The work goes on.
    Renew,
    /// The work is done.
    Release,
}

/// One endpoint.
#[derive(Debug)]
pub(crate) struct ApiRoute {
    pub(crate) path: &'static str,
    /// As `Allow` lists them. Empty: any.
    pub(crate) methods: &'static str,
    pub(crate) endpoint: ApiEndpoint,
    /// The longest body that a POST may have.
    pub(crate) max_body_len: usize,
}

const fn route(
    path: &'static str,
    methods: &'static str,
    endpoint: ApiEndpoint,
    max_body_len: usize,
) -> ApiRoute {
    ApiRoute {
        path,
        methods,
        endpoint,
        max_body_len,
    }
}

const POST: &str = "POST";
const LOOK: &str = "GET, HEAD";
const ANY: &str = "";

/// Every endpoint there is.
pub(crate) const ROUTES: &[ApiRoute] = &[
    route("/v1/check", "GET, POST", ApiEndpoint::Check, QUESTION),
    route("/v1/check/batch", POST, ApiEndpoint::Batch, QUESTIONS),
    route("/v1/acquire", POST, ApiEndpoint::Acquire, QUESTION),
    route("/v1/reserve", POST, ApiEndpoint::Reserve, QUESTION),
    route(
        "/v1/respond",
        POST,
        ApiEndpoint::Report(TicketReportKind::Respond),
        REPORT,
    ),
    route(
        "/v1/settle",
        POST,
        ApiEndpoint::Report(TicketReportKind::Settle),
        REPORT,
    ),
    route(
        "/v1/cancel",
        POST,
        ApiEndpoint::Report(TicketReportKind::Cancel),
        REPORT,
    ),
    route(
        "/v1/renew",
        POST,
        ApiEndpoint::Report(TicketReportKind::Renew),
        REPORT,
    ),
    route(
        "/v1/release",
        POST,
        ApiEndpoint::Report(TicketReportKind::Release),
        REPORT,
    ),
    route("/v1/status", LOOK, ApiEndpoint::Status, 0),
    route("/v1/limits", LOOK, ApiEndpoint::Limits, 0),
    route(
        "/auth/nginx",
        ANY,
        ApiEndpoint::ForwardAuth(Gateway::Nginx),
        0,
    ),
    route(
        "/auth/traefik",
        ANY,
        ApiEndpoint::ForwardAuth(Gateway::Traefik),
        0,
    ),
    route(
        "/auth/caddy",
        ANY,
        ApiEndpoint::ForwardAuth(Gateway::Caddy),
        0,
    ),
    route(
        "/auth/haproxy",
        ANY,
        ApiEndpoint::ForwardAuth(Gateway::Haproxy),
        0,
    ),
    route("/json", POST, ApiEndpoint::RlsJson, ENVOYS),
    route("/openapi.json", LOOK, ApiEndpoint::OpenApi, 0),
    route("/healthz", LOOK, ApiEndpoint::Health, 0),
    route("/healthcheck", LOOK, ApiEndpoint::EnvoyHealth, 0),
    route("/readyz", LOOK, ApiEndpoint::Ready, 0),
    route("/", LOOK, ApiEndpoint::FrontPage, 0),
];

impl ApiRoute {
    /// The endpoint at a path.
    pub(crate) fn find(path: &str) -> Option<&'static Self> {
        ROUTES.iter().find(|route| route.path == path)
    }

    /// Whether it is answered where files of envoyproxy/ratelimit decide, which know nothing of our attributes.
    pub(crate) const fn works_with_envoy_files(&self) -> bool {
        matches!(
            self.endpoint,
            ApiEndpoint::RlsJson
                | ApiEndpoint::OpenApi
                | ApiEndpoint::Health
                | ApiEndpoint::Ready
                | ApiEndpoint::EnvoyHealth
                | ApiEndpoint::FrontPage
        )
    }

    /// Whether it can be asked by this method.
    pub(crate) fn allows(&self, method: &Method) -> bool {
        self.methods.is_empty()
            || self
                .methods
                .as_bytes()
                .split(|byte| *byte == b',')
                .any(|allowed| allowed.trim_ascii_start() == method.as_str().as_bytes())
    }
}

/// The longest body that is read of such a request. None is read where none is wanted.
pub(crate) fn max_body_len(method: &Method, path: &str) -> usize {
    match ApiRoute::find(path) {
        Some(route) if *method == Method::POST && route.allows(method) => route.max_body_len,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_is_there_once() {
        for route in ROUTES {
            let same = ROUTES.iter().filter(|other| other.path == route.path);
            assert_eq!(same.count(), 1, "{}", route.path);
        }
    }

    #[test]
    fn bodies_are_read_only_where_one_is_wanted() {
        assert_eq!(max_body_len(&Method::POST, "/v1/check"), 8_192);
        assert_eq!(max_body_len(&Method::GET, "/v1/check"), 0);
        assert_eq!(max_body_len(&Method::POST, "/v1/check/batch"), 262_144);
        assert_eq!(max_body_len(&Method::POST, "/auth/nginx"), 0);
        assert_eq!(max_body_len(&Method::POST, "/healthz"), 0);
        assert_eq!(max_body_len(&Method::POST, "/nowhere"), 0);
    }
}
