//! A test setup: a server with envoyproxy/ratelimit configuration and a manual clock, an Envoy in front of it, an upstream and
//! a client.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tollgate_store::ManualClock;
use tollgate_testkit::envoy::{
    Envoy, Upstream, UpstreamReply, UpstreamRequest, Version, with_ports,
};

use crate::grpc::{TestGrpcServer, serve_file};
use crate::harness::{HttpClient, HttpReply};

/// The files of the examples.
pub(super) const ENVOY: &str = include_str!("../../../../../examples/envoy/envoy.yaml");
pub(super) const LIMITS: &str = include_str!("../../../../../examples/envoy/ratelimit.yaml");

/// Seconds from the test's time to the end of the minute, the hour and the day.
pub(super) const TO_THE_MINUTE: u64 = 40;
pub(super) const TO_THE_HOUR: u64 = 2_800;
pub(super) const TO_THE_DAY: u64 = 6_400;

pub(super) struct EnvoyHarness {
    pub(super) clock: Arc<ManualClock>,
    pub(super) envoy: Envoy,
    client: HttpClient,
    reached: Arc<AtomicU32>,
    _upstream: Upstream,
    _server: TestGrpcServer,
}

impl EnvoyHarness {
    /// The example as it is.
    pub(super) async fn new() -> Self {
        Self::with_config(Version::V1_40, ENVOY, LIMITS).await
    }

    /// Another version, configuration or limits. The ports are those of the example.
    pub(super) async fn with_config(version: Version, envoy: &str, limits: &str) -> Self {
        Self::in_front_of(serve_file(limits).await, version, envoy).await
    }

    /// The same in front of a running server.
    pub(super) async fn in_front_of(server: TestGrpcServer, version: Version, envoy: &str) -> Self {
        let reached = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&reached);
        let upstream = Upstream::answering(move |seen| {
            count.fetch_add(1, Ordering::Relaxed);
            as_asked(seen)
        });
        let ports = [
            (9901, 0),
            (10000, 0),
            (8081, server.address.port()),
            (3000, upstream.address().port()),
        ];
        // The example's timeout is too short for a busy machine.
        let patient = envoy.replace("timeout: 0.02s", "timeout: 30s");
        assert_ne!(patient, envoy, "the timeout has another value now");
        let envoy = Envoy::start(version, &with_ports(&patient, &ports));
        Self {
            clock: Arc::clone(&server.clock),
            client: HttpClient::to(envoy.listener("edge")).await,
            envoy,
            reached,
            _upstream: upstream,
            _server: server,
        }
    }

    pub(super) async fn get(&mut self, target: &str, fields: &[(&str, &str)]) -> HttpReply {
        self.client.request_with("GET", target, fields, "").await
    }

    /// A GET whose response is returned as lines, because a field may occur more than once.
    pub(super) async fn lines(&mut self, target: &str, fields: &str) -> Vec<String> {
        let mut client = HttpClient::to(self.envoy.listener("edge")).await;
        client
            .send(&format!(
                "GET {target} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n{fields}\r\n"
            ))
            .await;
        let answer = String::from_utf8(client.read_until_closed().await).unwrap();
        answer.lines().map(str::to_owned).collect()
    }

    /// A GET that must be admitted. Returns the remaining quota.
    pub(super) async fn remaining_after(&mut self, target: &str, fields: &[(&str, &str)]) -> u64 {
        let answer = self.get(target, fields).await;
        assert_eq!(answer.status, 200, "{target}: {answer:?}");
        remaining(&answer).unwrap_or_else(|| panic!("{target} was not limited: {answer:?}"))
    }

    /// How many requests have reached the upstream.
    pub(super) fn reached(&self) -> u32 {
        self.reached.load(Ordering::Relaxed)
    }

    /// Waits until Envoy has completed this many calls. The call after a response has no effect that a client could see.
    pub(super) fn wait_for_calls(&self, times: u64) {
        let name = "cluster.tollgate.upstream_rq_completed";
        self.envoy.until_counted(name, times);
    }
}

/// The remaining quota that Envoy reports.
pub(super) fn remaining(answer: &HttpReply) -> Option<u64> {
    let field = answer.field("x-ratelimit-remaining")?;
    Some(field.parse().unwrap())
}

/// The upstream returns the fields that the client requests as `say-…`.
fn as_asked(seen: &UpstreamRequest) -> UpstreamReply {
    let names = ["x-tokens-used", "x-cached", "ratelimit"];
    names
        .iter()
        .filter_map(|name| Some((name, seen.field(&format!("say-{name}"))?)))
        .fold(UpstreamReply::new(200), |reply, (name, value)| {
            reply.with(name, value)
        })
        .saying("fine\n")
}
