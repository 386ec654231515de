//! A server that decides by files of envoyproxy/ratelimit on a clock that stands still, an Envoy that asks it, an upstream
//! behind that and a client before it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tollgate_store::ManualClock;
use tollgate_testkit::envoy::{
    Envoy, Upstream, UpstreamReply, UpstreamRequest, Version, with_ports,
};

use crate::grpc::{TestGrpcServer, serve_file};
use crate::harness::{HttpClient, HttpReply};

/// What people copy.
pub(super) const ENVOY: &str = include_str!("../../../../../examples/envoy/envoy.yaml");
pub(super) const LIMITS: &str = include_str!("../../../../../examples/envoy/ratelimit.yaml");

/// Seconds from the instant at which the clock stands to the end of the minute, the hour and the day.
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
    /// The example.
    pub(super) async fn new() -> Self {
        Self::with_config(Version::V1_40, ENVOY, LIMITS).await
    }

    /// Any version, configuration and limits; the ports are those of the example.
    pub(super) async fn with_config(version: Version, envoy: &str, limits: &str) -> Self {
        Self::in_front_of(serve_file(limits).await, version, envoy).await
    }

    /// The same before a server that is there.
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
        // On a busy machine an answer may take longer than anybody wants to wait for one in earnest.
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

    /// A GET whose answer is told line by line, because a field may come more than once.
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

    /// A GET that must be admitted, and how much it leaves.
    pub(super) async fn remaining_after(&mut self, target: &str, fields: &[(&str, &str)]) -> u64 {
        let answer = self.get(target, fields).await;
        assert_eq!(answer.status, 200, "{target}: {answer:?}");
        remaining(&answer).unwrap_or_else(|| panic!("{target} was not limited: {answer:?}"))
    }

    /// How many requests have come through to the upstream.
    pub(super) fn reached(&self) -> u32 {
        self.reached.load(Ordering::Relaxed)
    }

    /// Waits until Envoy has been answered so often: what it asks when a response is over has no answer that a client sees.
    pub(super) fn wait_for_calls(&self, times: u64) {
        let name = "cluster.tollgate.upstream_rq_completed";
        self.envoy.until_counted(name, times);
    }
}

/// What Envoy says is left.
pub(super) fn remaining(answer: &HttpReply) -> Option<u64> {
    let field = answer.field("x-ratelimit-remaining")?;
    Some(field.parse().unwrap())
}

/// The upstream sends the fields that the client asks it for as `say-…`.
fn as_asked(seen: &UpstreamRequest) -> UpstreamReply {
    let said = ["x-tokens-used", "x-cached", "ratelimit"];
    said.iter()
        .filter_map(|name| Some((name, seen.field(&format!("say-{name}"))?)))
        .fold(UpstreamReply::new(200), |reply, (name, value)| {
            reply.with(name, value)
        })
        .saying("fine\n")
}
