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
pub(crate) enum Endpoint {
    /// May this request proceed?
    Check,
    /// The same of several.
    Batch,
    /// A check that takes places.
    Acquire,
    /// A check whose cost is settled later.
    Reserve,
    /// What a request still owes, and what came of it.
    Report(Report),
    /// A gateway asks about a request that it holds.
    Auth(Gateway),
    /// Where a key stands.
    Status,
    /// Which limits there are.
    Limits,
    /// What Envoy asks, as JSON.
    Envoy,
    /// The description of all this.
    OpenApi,
    /// Whether the server is there.
    Health,
    /// The same, as probes of envoyproxy/ratelimit ask.
    EnvoysHealth,
    /// Whether requests should be sent to it.
    Ready,
    /// What a newcomer reads.
    Front,
}

impl Endpoint {
    /// Whether it is a question about requests, so that the time it takes is of interest.
    pub(crate) const fn decides(self) -> bool {
        matches!(
            self,
            Self::Check
                | Self::Batch
                | Self::Acquire
                | Self::Reserve
                | Self::Auth(_)
                | Self::Envoy
                | Self::Status
        )
    }
}

/// What is reported about a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Report {
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
pub(crate) struct Route {
    pub(crate) path: &'static str,
    /// As `Allow` lists them. Empty: any.
    pub(crate) methods: &'static str,
    pub(crate) endpoint: Endpoint,
    /// The longest body that a POST may have.
    pub(crate) max_body_len: usize,
}

const fn route(
    path: &'static str,
    methods: &'static str,
    endpoint: Endpoint,
    max_body_len: usize,
) -> Route {
    Route {
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
pub(crate) const ROUTES: &[Route] = &[
    route("/v1/check", "GET, POST", Endpoint::Check, QUESTION),
    route("/v1/check/batch", POST, Endpoint::Batch, QUESTIONS),
    route("/v1/acquire", POST, Endpoint::Acquire, QUESTION),
    route("/v1/reserve", POST, Endpoint::Reserve, QUESTION),
    route(
        "/v1/respond",
        POST,
        Endpoint::Report(Report::Respond),
        REPORT,
    ),
    route("/v1/settle", POST, Endpoint::Report(Report::Settle), REPORT),
    route("/v1/cancel", POST, Endpoint::Report(Report::Cancel), REPORT),
    route("/v1/renew", POST, Endpoint::Report(Report::Renew), REPORT),
    route(
        "/v1/release",
        POST,
        Endpoint::Report(Report::Release),
        REPORT,
    ),
    route("/v1/status", LOOK, Endpoint::Status, 0),
    route("/v1/limits", LOOK, Endpoint::Limits, 0),
    route("/auth/nginx", ANY, Endpoint::Auth(Gateway::Nginx), 0),
    route("/auth/traefik", ANY, Endpoint::Auth(Gateway::Traefik), 0),
    route("/auth/caddy", ANY, Endpoint::Auth(Gateway::Caddy), 0),
    route("/auth/haproxy", ANY, Endpoint::Auth(Gateway::Haproxy), 0),
    route("/json", POST, Endpoint::Envoy, ENVOYS),
    route("/openapi.json", LOOK, Endpoint::OpenApi, 0),
    route("/healthz", LOOK, Endpoint::Health, 0),
    route("/healthcheck", LOOK, Endpoint::EnvoysHealth, 0),
    route("/readyz", LOOK, Endpoint::Ready, 0),
    route("/", LOOK, Endpoint::Front, 0),
];

impl Route {
    /// The endpoint at a path.
    pub(crate) fn at(path: &str) -> Option<&'static Self> {
        ROUTES.iter().find(|route| route.path == path)
    }

    /// Whether it is answered where files of envoyproxy/ratelimit decide, which know nothing of our attributes.
    pub(crate) const fn is_for_files(&self) -> bool {
        matches!(
            self.endpoint,
            Endpoint::Envoy
                | Endpoint::OpenApi
                | Endpoint::Health
                | Endpoint::Ready
                | Endpoint::EnvoysHealth
                | Endpoint::Front
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
    match Route::at(path) {
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
