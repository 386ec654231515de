//! The table of admin endpoints: path, methods and permission.
//!
//! Must not know: what an endpoint does, who has which permission.

use hyper::Method;

/// The longest body: a few short fields and a key.
const MAX_BODY_LEN: usize = 16_384;

/// The endpoints of the admin listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AdminEndpoint {
    /// The index page.
    FrontPage,
    /// Whether the process is alive.
    Health,
    /// Whether load balancers should send requests.
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
    Charges,
    Refunds,
    Audit,
    Reload,
    OpenApi,
}

/// The permission that a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Permission {
    /// None: health checks, which reveal nothing.
    Public,
    Read,
    Operate,
}

/// One endpoint.
#[derive(Debug)]
pub(super) struct AdminRoute {
    pub(super) path: &'static str,
    /// As `Allow` lists them.
    pub(super) methods: &'static str,
    pub(super) endpoint: AdminEndpoint,
    /// Its line on the index page.
    pub(super) description: &'static str,
}

const fn route(
    path: &'static str,
    methods: &'static str,
    endpoint: AdminEndpoint,
    about: &'static str,
) -> AdminRoute {
    AdminRoute {
        path,
        methods,
        endpoint,
        description: about,
    }
}

const READ_METHODS: &str = "GET, HEAD";
const EDIT_METHODS: &str = "GET, HEAD, PUT, DELETE";

/// All endpoints.
pub(super) const ROUTES: &[AdminRoute] = &[
    route("/", READ_METHODS, AdminEndpoint::FrontPage, "this page"),
    route(
        "/healthz",
        READ_METHODS,
        AdminEndpoint::Health,
        "200 while the process answers",
    ),
    route(
        "/readyz",
        READ_METHODS,
        AdminEndpoint::Ready,
        "200 while ready for requests, 503 during shutdown",
    ),
    route(
        "/metrics",
        READ_METHODS,
        AdminEndpoint::Metrics,
        "Prometheus text format, or OpenMetrics if Accept asks for it",
    ),
    route(
        "/v1/limits",
        READ_METHODS,
        AdminEndpoint::Limits,
        "the limits in force in plain words, with counters",
    ),
    route(
        "/v1/state",
        READ_METHODS,
        AdminEndpoint::State,
        "connections, tickets, store usage, and how candidates compare",
    ),
    route(
        "/fleet",
        READ_METHODS,
        AdminEndpoint::Fleet,
        "the nodes of the fleet, their mismatches, and whether operator changes have spread",
    ),
    route(
        "/v1/policy",
        READ_METHODS,
        AdminEndpoint::Policy,
        "the source of the policy and its limits",
    ),
    route(
        "/v1/switches",
        "GET, HEAD, PUT",
        AdminEndpoint::Switches,
        "enforcement switches; PUT limit, to, enforce",
    ),
    route(
        "/v1/overrides",
        EDIT_METHODS,
        AdminEndpoint::Overrides,
        "quota overrides of single keys; PUT limit, key, quota, for; DELETE limit, key",
    ),
    route(
        "/v1/blocks",
        EDIT_METHODS,
        AdminEndpoint::Blocks,
        "blocked keys and addresses; PUT limit and key, or address, for; DELETE the same",
    ),
    route(
        "/v1/resets",
        "POST",
        AdminEndpoint::Resets,
        "resets the usage of a key; POST limit, key",
    ),
    route(
        "/v1/charges",
        "POST",
        AdminEndpoint::Charges,
        "charges units to a key, even if they are not left; POST limit, key, units, attributes",
    ),
    route(
        "/v1/refunds",
        "POST",
        AdminEndpoint::Refunds,
        "refunds units to a key, at most all it has used; POST limit, key, units, attributes",
    ),
    route(
        "/v1/audit",
        READ_METHODS,
        AdminEndpoint::Audit,
        "the audit log, newest first",
    ),
    route(
        "/v1/reload",
        "POST",
        AdminEndpoint::Reload,
        "reloads the policy file; POST",
    ),
    route(
        "/openapi.json",
        READ_METHODS,
        AdminEndpoint::OpenApi,
        "the OpenAPI document",
    ),
];

impl AdminRoute {
    /// The route of a path.
    pub(super) fn find(path: &str) -> Option<&'static Self> {
        ROUTES.iter().find(|route| route.path == path)
    }

    /// Whether the endpoint allows this method.
    pub(super) fn allows(&self, method: &Method) -> bool {
        let mut methods = self.methods.split(", ");
        methods.any(|allowed| allowed == method.as_str())
    }

    /// The permission that this method needs.
    pub(super) fn required_permission(&self, method: &Method) -> Permission {
        match self.endpoint {
            AdminEndpoint::Health | AdminEndpoint::Ready => Permission::Public,
            _ if is_write(method) => Permission::Operate,
            _ => Permission::Read,
        }
    }
}

/// Whether requests with this method change something.
pub(super) fn is_write(method: &Method) -> bool {
    !matches!(*method, Method::GET | Method::HEAD)
}

/// The longest body that is read for such a request.
pub(super) fn max_body_len(method: &Method, path: &str) -> usize {
    match AdminRoute::find(path) {
        Some(route) if is_write(method) && route.allows(method) => MAX_BODY_LEN,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_is_listed_once_with_a_description() {
        for route in ROUTES {
            let same = ROUTES.iter().filter(|other| other.path == route.path);
            assert_eq!(same.count(), 1, "{}", route.path);
            assert!(!route.description.is_empty(), "{}", route.path);
        }
    }

    #[test]
    fn every_write_needs_the_operate_permission() {
        for route in ROUTES {
            for method in ["PUT", "POST", "DELETE", "PATCH"] {
                let method = Method::from_bytes(method.as_bytes()).unwrap();
                if route.allows(&method) {
                    assert_eq!(
                        route.required_permission(&method),
                        Permission::Operate,
                        "{}",
                        route.path
                    );
                }
            }
        }
        let read = |path| {
            AdminRoute::find(path)
                .unwrap()
                .required_permission(&Method::GET)
        };
        assert_eq!(read("/metrics"), Permission::Read);
        assert_eq!(read("/v1/audit"), Permission::Read);
        assert_eq!(read("/healthz"), Permission::Public);
    }

    #[test]
    fn bodies_are_read_only_where_something_changes() {
        assert_eq!(max_body_len(&Method::PUT, "/v1/switches"), 16_384);
        assert_eq!(max_body_len(&Method::GET, "/v1/switches"), 0);
        assert_eq!(max_body_len(&Method::POST, "/v1/switches"), 0);
        assert_eq!(max_body_len(&Method::POST, "/nowhere"), 0);
    }
}
