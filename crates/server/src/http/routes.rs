//! The table of endpoints: path, methods, and the longest body.
//!
//! Must not know: what an endpoint does.

use hyper::Method;

use crate::http::forward_auth::Gateway;

/// The longest body of a check, of a batch, and of a report, in bytes.
const MAX_CHECK_BODY_LEN: usize = 8_192;
const MAX_BATCH_BODY_LEN: usize = 262_144;
const MAX_REPORT_BODY_LEN: usize = 16_384;
/// As long as the longest gRPC message from Envoy.
const MAX_RLS_BODY_LEN: usize = 65_536;

/// The endpoints of the public API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ApiEndpoint {
    /// Checks a request.
    Check,
    /// Checks several requests.
    Batch,
    /// Checks a request and acquires leases.
    Acquire,
    /// Checks a request whose cost is settled later.
    Reserve,
    /// Reports about a ticket.
    Report(TicketReportKind),
    /// Checks the request that a gateway holds.
    ForwardAuth(Gateway),
    /// The status of the limits of a key.
    Status,
    /// The list of limits.
    Limits,
    /// Envoy's rate limit request as JSON.
    RlsJson,
    /// The OpenAPI document.
    OpenApi,
    /// Whether the process is alive.
    Health,
    /// The same for probes of envoyproxy/ratelimit.
    EnvoyHealth,
    /// Whether load balancers should send requests.
    Ready,
    /// The welcome page.
    FrontPage,
}

impl ApiEndpoint {
    /// Whether the endpoint makes decisions, so that its duration is measured.
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

/// What a report says about a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TicketReportKind {
    /// The upstream's response.
    Respond,
    /// The actual cost.
    Settle,
    /// The request did not happen.
    Cancel,
    /// The request is still in progress.
    Renew,
    /// The request is done.
    Release,
}

/// One endpoint.
#[derive(Debug)]
pub(crate) struct ApiRoute {
    pub(crate) path: &'static str,
    /// As `Allow` lists them. Empty means any method.
    pub(crate) methods: &'static str,
    pub(crate) endpoint: ApiEndpoint,
    /// The longest body of a POST.
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
const READ_METHODS: &str = "GET, HEAD";
const ANY_METHOD: &str = "";

/// All endpoints.
pub(crate) const ROUTES: &[ApiRoute] = &[
    route(
        "/v1/check",
        "GET, POST",
        ApiEndpoint::Check,
        MAX_CHECK_BODY_LEN,
    ),
    route(
        "/v1/check/batch",
        POST,
        ApiEndpoint::Batch,
        MAX_BATCH_BODY_LEN,
    ),
    route(
        "/v1/acquire",
        POST,
        ApiEndpoint::Acquire,
        MAX_CHECK_BODY_LEN,
    ),
    route(
        "/v1/reserve",
        POST,
        ApiEndpoint::Reserve,
        MAX_CHECK_BODY_LEN,
    ),
    route(
        "/v1/respond",
        POST,
        ApiEndpoint::Report(TicketReportKind::Respond),
        MAX_REPORT_BODY_LEN,
    ),
    route(
        "/v1/settle",
        POST,
        ApiEndpoint::Report(TicketReportKind::Settle),
        MAX_REPORT_BODY_LEN,
    ),
    route(
        "/v1/cancel",
        POST,
        ApiEndpoint::Report(TicketReportKind::Cancel),
        MAX_REPORT_BODY_LEN,
    ),
    route(
        "/v1/renew",
        POST,
        ApiEndpoint::Report(TicketReportKind::Renew),
        MAX_REPORT_BODY_LEN,
    ),
    route(
        "/v1/release",
        POST,
        ApiEndpoint::Report(TicketReportKind::Release),
        MAX_REPORT_BODY_LEN,
    ),
    route("/v1/status", READ_METHODS, ApiEndpoint::Status, 0),
    route("/v1/limits", READ_METHODS, ApiEndpoint::Limits, 0),
    route(
        "/auth/nginx",
        ANY_METHOD,
        ApiEndpoint::ForwardAuth(Gateway::Nginx),
        0,
    ),
    route(
        "/auth/traefik",
        ANY_METHOD,
        ApiEndpoint::ForwardAuth(Gateway::Traefik),
        0,
    ),
    route(
        "/auth/caddy",
        ANY_METHOD,
        ApiEndpoint::ForwardAuth(Gateway::Caddy),
        0,
    ),
    route(
        "/auth/haproxy",
        ANY_METHOD,
        ApiEndpoint::ForwardAuth(Gateway::Haproxy),
        0,
    ),
    route("/json", POST, ApiEndpoint::RlsJson, MAX_RLS_BODY_LEN),
    route("/openapi.json", READ_METHODS, ApiEndpoint::OpenApi, 0),
    route("/healthz", READ_METHODS, ApiEndpoint::Health, 0),
    route("/healthcheck", READ_METHODS, ApiEndpoint::EnvoyHealth, 0),
    route("/readyz", READ_METHODS, ApiEndpoint::Ready, 0),
    route("/", READ_METHODS, ApiEndpoint::FrontPage, 0),
];

impl ApiRoute {
    /// The route of a path.
    pub(crate) fn find(path: &str) -> Option<&'static Self> {
        ROUTES.iter().find(|route| route.path == path)
    }

    /// Whether the endpoint works with envoyproxy/ratelimit configuration, which has no attributes.
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

    /// Whether the endpoint allows this method.
    pub(crate) fn allows(&self, method: &Method) -> bool {
        self.methods.is_empty()
            || self
                .methods
                .as_bytes()
                .split(|byte| *byte == b',')
                .any(|allowed| allowed.trim_ascii_start() == method.as_str().as_bytes())
    }
}

/// The longest body that is read for such a request; 0 if the endpoint takes none.
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
