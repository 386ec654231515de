//! The compiled routes: which upstream gets a request. A reload makes a new table; a request keeps the one it began with.
//!
//! Must not know: requests beyond host and path, connections.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hyper::StatusCode;
use hyper::header::{HeaderName, HeaderValue};
use tollgate_core::Timestamp;
use tollgate_policy::model::{GatewaySpec, HeaderEdits, RouteSpec};

use tollgate_service::metrics::GatewayCounts;
use tollgate_service::{OverloadControl, OverloadTargets};

use super::stream_tasks::StreamTasks;
use super::upstream::Upstream;
use crate::listen::InvalidTls;
use crate::listen::counters::increment;

/// The compiled routes.
#[derive(Debug)]
pub(super) struct RouteTable {
    /// Routes of one host, and of `*.` and the end of hosts.
    by_host: HashMap<Box<str>, Vec<Arc<Route>>>,
    /// Routes of every host.
    any_host: Vec<Arc<Route>>,
    upstreams: Vec<Arc<Upstream>>,
}

/// A compiled route.
#[derive(Debug)]
pub(super) struct Route {
    /// Its host and path, for logs and metrics.
    label: Box<str>,
    path: Box<str>,
    pub(super) strip_prefix: bool,
    /// The most bytes of a request's body.
    pub(super) max_body_len: Option<u64>,
    pub(super) upstream: Arc<Upstream>,
    pub(super) request_headers: CompiledEdits,
    pub(super) response_headers: CompiledEdits,
    /// What its upstream can do for it. A reload keeps it, unless the route gets another upstream.
    overload: Arc<OverloadControl>,
    /// Responses by the first digit of their status. A reload keeps them.
    responses: Arc<[AtomicU64; 5]>,
}

/// Changes of header fields.
#[derive(Debug, Default)]
pub(super) struct CompiledEdits {
    pub(super) remove: Vec<HeaderName>,
    pub(super) add: Vec<(HeaderName, HeaderValue)>,
}

impl RouteTable {
    /// Compiles a gateway. Upstreams that are the same as before keep their connections and their health.
    pub(super) fn new(
        spec: &GatewaySpec,
        before: Option<&Self>,
        tasks: &StreamTasks,
        targets: &OverloadTargets,
    ) -> Result<Self, InvalidTls> {
        let known = before.map_or(&[][..], |table| &table.upstreams);
        let mut upstreams = Vec::with_capacity(spec.upstreams.len());
        for upstream in &spec.upstreams {
            let same = known.iter().find(|known| known.spec() == upstream);
            upstreams.push(match same {
                Some(same) => Arc::clone(same),
                None => Arc::new(Upstream::new(upstream, tasks)?),
            });
        }
        let mut table = Self {
            by_host: HashMap::new(),
            any_host: Vec::new(),
            upstreams,
        };
        for route in &spec.routes {
            table.add(route, spec.max_body_size, before, targets);
        }
        let lists = table.by_host.values_mut().chain([&mut table.any_host]);
        for routes in lists {
            routes.sort_by_key(|route| std::cmp::Reverse(route.path.len()));
        }
        Ok(table)
    }

    fn add(
        &mut self,
        spec: &RouteSpec,
        max_body_size: Option<u64>,
        before: Option<&Self>,
        targets: &OverloadTargets,
    ) {
        let mut upstreams = self.upstreams.iter();
        let named = upstreams.find(|known| known.spec().name == spec.upstream);
        // A policy without this upstream was refused.
        let Some(upstream) = named else { return };
        let host = spec.host.as_deref().unwrap_or("*");
        let label: Box<str> = format!("{host}{}", spec.path).into();
        let mut known = before.into_iter().flat_map(Self::routes);
        let known = known.find(|known| known.label == label);
        let route = Arc::new(Route {
            overload: targets.target(&upstream.spec().name.value, &label),
            responses: known
                .map(|known| Arc::clone(&known.responses))
                .unwrap_or_default(),
            label,
            path: spec.path.clone(),
            strip_prefix: spec.strip_prefix,
            max_body_len: spec.max_body_size.or(max_body_size),
            upstream: Arc::clone(upstream),
            request_headers: CompiledEdits::new(&spec.request_headers),
            response_headers: CompiledEdits::new(&spec.response_headers),
        });
        match &spec.host {
            Some(host) => self.by_host.entry(host.clone()).or_default().push(route),
            None => self.any_host.push(route),
        }
    }

    pub(super) fn upstreams(&self) -> &[Arc<Upstream>] {
        &self.upstreams
    }

    /// What has been counted.
    pub(super) fn counts(&self, now: Timestamp) -> GatewayCounts {
        let route = |route: &Arc<Route>| {
            let counts = route
                .responses
                .each_ref()
                .map(|count| count.load(Ordering::Relaxed));
            (route.label.clone(), counts)
        };
        GatewayCounts {
            routes: self.routes().map(route).collect(),
            upstreams: self.upstreams.iter().map(|one| one.counts(now)).collect(),
        }
    }

    /// All routes.
    fn routes(&self) -> impl Iterator<Item = &Arc<Route>> {
        self.by_host.values().flatten().chain(&self.any_host)
    }

    /// The route of a host, in lower case and without its port, and a path. The most specific host that has a route for the
    /// path decides, then the longest path.
    pub(super) fn find(&self, host: &str, path: &str) -> Option<&Arc<Route>> {
        let mut found = None;
        if !self.by_host.is_empty() {
            found = self
                .by_host
                .get(host)
                .and_then(|routes| first_for(routes, path));
            let mut rest = host;
            while let (None, Some((_, parent))) = (found, rest.split_once('.')) {
                let routes = self.by_host.get(&*format!("*.{parent}"));
                found = routes.and_then(|routes| first_for(routes, path));
                rest = parent;
            }
        }
        found.or_else(|| first_for(&self.any_host, path))
    }
}

fn first_for<'a>(routes: &'a [Arc<Route>], path: &str) -> Option<&'a Arc<Route>> {
    routes.iter().find(|route| route.is_for(path))
}

impl Route {
    /// Counts a response.
    pub(super) fn record_response(&self, status: StatusCode) {
        let class = usize::from(status.as_u16() / 100).saturating_sub(1);
        if let Some(count) = self.responses.get(class) {
            increment(count);
        }
    }

    pub(super) const fn overload(&self) -> &Arc<OverloadControl> {
        &self.overload
    }

    pub(super) fn label(&self) -> &str {
        &self.label
    }

    fn is_for(&self, path: &str) -> bool {
        match path.strip_prefix(&*self.path) {
            Some(rest) => rest.is_empty() || rest.starts_with('/') || &*self.path == "/",
            None => false,
        }
    }

    /// The path that the upstream gets, and the prefix that was removed.
    pub(super) fn forwarded_path<'a>(&self, path: &'a str) -> (&'a str, Option<&str>) {
        if !self.strip_prefix || &*self.path == "/" {
            return (path, None);
        }
        let rest = path.strip_prefix(&*self.path).unwrap_or(path);
        let rest = if rest.is_empty() { "/" } else { rest };
        (rest, Some(&self.path))
    }
}

impl CompiledEdits {
    /// Names and values were checked when the policy was read.
    fn new(edits: &HeaderEdits) -> Self {
        let name = |name: &str| HeaderName::from_bytes(name.as_bytes()).ok();
        let field = |(field, value): &(Box<str>, Box<str>)| {
            Some((name(field)?, HeaderValue::from_str(value).ok()?))
        };
        Self {
            remove: edits
                .remove
                .iter()
                .filter_map(|removed| name(removed))
                .collect(),
            add: edits.add.iter().filter_map(field).collect(),
        }
    }

    pub(super) fn apply(&self, headers: &mut hyper::HeaderMap) {
        for name in &self.remove {
            headers.remove(name);
        }
        for (name, value) in &self.add {
            headers.append(name, value.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use tollgate_policy::source::SourceFormat;

    use super::*;

    fn gateway(text: &str) -> GatewaySpec {
        let mut policy = String::from(
            "limits: none\ngateway:\n  upstreams: { a: http://a, b: http://b, c: http://c, d: http://d }\n  routes:\n",
        );
        for line in text.split(';') {
            writeln!(policy, "    - {{ {} }}", line.trim()).unwrap();
        }
        let policy = tollgate_policy::load(&policy, "p.yaml", SourceFormat::Yaml);
        policy
            .unwrap_or_else(|problems| panic!("{problems}"))
            .gateway
            .unwrap()
    }

    fn table(text: &str, before: Option<&RouteTable>) -> RouteTable {
        let tasks = StreamTasks::new(Arc::default());
        RouteTable::new(&gateway(text), before, &tasks, &OverloadTargets::default()).unwrap()
    }

    #[test]
    fn the_most_specific_host_decides_and_then_the_longest_path() {
        let table = table(
            "path: /api, upstream: a; host: x.example, upstream: b; host: \"*.example\", path: /api/v1, upstream: c; host: x.example, path: /api/v1, upstream: d",
            None,
        );
        for (host, path, upstream) in [
            ("x.example", "/", Some("b")),
            ("x.example", "/api/v1", Some("d")),
            ("x.example", "/api/v1/x", Some("d")),
            ("x.example", "/api/v10", Some("b")),
            ("y.example", "/api/v1/", Some("c")),
            ("z.y.example", "/api/v1", Some("c")),
            ("example", "/api/v1", Some("a")),
            ("y.example", "/api", Some("a")),
            ("y.example", "/apis", None),
            ("y.example", "/", None),
            ("", "/api/x", Some("a")),
        ] {
            let found = table
                .find(host, path)
                .map(|route| &*route.upstream.spec().name.value);
            assert_eq!(found, upstream, "{host}{path}");
        }
    }

    #[test]
    fn a_prefix_is_removed_in_whole_segments() {
        let table = table(
            "path: /api, upstream: a, strip_prefix: true; upstream: b, strip_prefix: true",
            None,
        );
        for (path, forwarded) in [
            ("/api", "/"),
            ("/api/", "/"),
            ("/api/x", "/x"),
            ("/x", "/x"),
            ("/apis", "/apis"),
        ] {
            let route = table.find("h", path).unwrap();
            assert_eq!(route.forwarded_path(path).0, forwarded);
        }
    }

    #[test]
    fn an_upstream_that_stays_the_same_keeps_its_connections() {
        let before = table("upstream: a; path: /b, upstream: b", None);
        let mut spec = gateway("upstream: b; path: /a, upstream: a");
        spec.upstreams[1].retries = 5;
        let (tasks, targets) = (StreamTasks::new(Arc::default()), OverloadTargets::default());
        let after = RouteTable::new(&spec, Some(&before), &tasks, &targets).unwrap();
        let is_same = |at: usize| Arc::ptr_eq(&before.upstreams[at], &after.upstreams[at]);
        assert!(is_same(0) && !is_same(1), "the second has changed");
    }
}
