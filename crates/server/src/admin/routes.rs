//! The table of admin endpoints: where each is, by which methods, and what right it takes.
//!
//! Must not know: what an endpoint answers, who has which right.

use hyper::Method;

/// The longest body that is read: a few short fields and a key.
const MOST_BODY: usize = 16_384;

/// What can be asked of the admin listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Endpoint {
    /// What there is.
    Front,
    /// Whether the process is there.
    Health,
    /// Whether it should be sent requests.
    Ready,
    Metrics,
    Limits,
    State,
    Fleet,
    Policy,
    Switches,
    Overrides,
    Blocks,
    Resets,
    Audit,
    Reload,
    OpenApi,
}

/// What somebody may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Right {
    /// Ask whether the server is there, which says nothing about anybody.
    Nothing,
    Read,
    Operate,
}

/// One endpoint.
#[derive(Debug)]
pub(super) struct Route {
    pub(super) path: &'static str,
    /// As `Allow` lists them.
    pub(super) methods: &'static str,
    pub(super) endpoint: Endpoint,
    /// What the front page says about it.
    pub(super) about: &'static str,
}

const fn route(
    path: &'static str,
    methods: &'static str,
    endpoint: Endpoint,
    about: &'static str,
) -> Route {
    Route {
        path,
        methods,
        endpoint,
        about,
    }
}

const LOOK: &str = "GET, HEAD";
const EDIT: &str = "GET, HEAD, PUT, DELETE";

/// Every endpoint there is.
pub(super) const ROUTES: &[Route] = &[
    route("/", LOOK, Endpoint::Front, "this page"),
    route(
        "/healthz",
        LOOK,
        Endpoint::Health,
        "200 while the process answers",
    ),
    route(
        "/readyz",
        LOOK,
        Endpoint::Ready,
        "200 while requests should be sent here, 503 while it stops",
    ),
    route(
        "/metrics",
        LOOK,
        Endpoint::Metrics,
        "Prometheus text, or OpenMetrics for those who ask for it",
    ),
    route(
        "/v1/limits",
        LOOK,
        Endpoint::Limits,
        "the limits in force in plain words, with counters",
    ),
    route(
        "/v1/state",
        LOOK,
        Endpoint::State,
        "what the server has done, how candidates compare, how full the store is",
    ),
    route(
        "/fleet",
        LOOK,
        Endpoint::Fleet,
        "who else is there, who differs, and what of operators' words got round",
    ),
    route(
        "/v1/policy",
        LOOK,
        Endpoint::Policy,
        "where the policy comes from and what it says",
    ),
    route(
        "/v1/switches",
        "GET, HEAD, PUT",
        Endpoint::Switches,
        "how far limits are enforced; PUT limit, to, enforce",
    ),
    route(
        "/v1/overrides",
        EDIT,
        Endpoint::Overrides,
        "other quotas for single keys; PUT limit, key, quota, for; DELETE limit, key",
    ),
    route(
        "/v1/blocks",
        EDIT,
        Endpoint::Blocks,
        "who is refused; PUT limit and key, or address, for; DELETE the same",
    ),
    route(
        "/v1/resets",
        "POST",
        Endpoint::Resets,
        "forgets what a key has used; limit, key",
    ),
    route(
        "/v1/audit",
        LOOK,
        Endpoint::Audit,
        "what operators did, the latest first",
    ),
    route(
        "/v1/reload",
        "POST",
        Endpoint::Reload,
        "reads the policy's file again",
    ),
    route(
        "/openapi.json",
        LOOK,
        Endpoint::OpenApi,
        "the description of all this",
    ),
];

impl Route {
    /// The endpoint at a path.
    pub(super) fn at(path: &str) -> Option<&'static Self> {
        ROUTES.iter().find(|route| route.path == path)
    }

    /// Whether it can be asked by this method.
    pub(super) fn allows(&self, method: &Method) -> bool {
        let mut methods = self.methods.split(", ");
        methods.any(|allowed| allowed == method.as_str())
    }

    /// What it takes to ask it so.
    pub(super) fn takes(&self, method: &Method) -> Right {
        match self.endpoint {
            Endpoint::Health | Endpoint::Ready => Right::Nothing,
            _ if changes(method) => Right::Operate,
            _ => Right::Read,
        }
    }
}

/// Whether a request by this method changes anything.
pub(super) fn changes(method: &Method) -> bool {
    !matches!(*method, Method::GET | Method::HEAD)
}

/// The longest body that is read of such a request.
pub(super) fn max_body_len(method: &Method, path: &str) -> usize {
    match Route::at(path) {
        Some(route) if changes(method) && route.allows(method) => MOST_BODY,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_is_there_once_and_says_what_it_is() {
        for route in ROUTES {
            let same = ROUTES.iter().filter(|other| other.path == route.path);
            assert_eq!(same.count(), 1, "{}", route.path);
            assert!(!route.about.is_empty(), "{}", route.path);
        }
    }

    #[test]
    fn whatever_changes_something_takes_the_right_to_operate() {
        for route in ROUTES {
            for method in ["PUT", "POST", "DELETE", "PATCH"] {
                let method = Method::from_bytes(method.as_bytes()).unwrap();
                if route.allows(&method) {
                    assert_eq!(route.takes(&method), Right::Operate, "{}", route.path);
                }
            }
        }
        let read = |path| Route::at(path).unwrap().takes(&Method::GET);
        assert_eq!(read("/metrics"), Right::Read);
        assert_eq!(read("/v1/audit"), Right::Read);
        assert_eq!(read("/healthz"), Right::Nothing);
    }

    #[test]
    fn bodies_are_read_only_where_something_changes() {
        assert_eq!(max_body_len(&Method::PUT, "/v1/switches"), 16_384);
        assert_eq!(max_body_len(&Method::GET, "/v1/switches"), 0);
        assert_eq!(max_body_len(&Method::POST, "/v1/switches"), 0);
        assert_eq!(max_body_len(&Method::POST, "/nowhere"), 0);
    }
}
