//! A test setup: a server with the system clock, Envoys that share its limits, and load on each Envoy whose admissions are
//! recorded.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tollgate_server::grpc::{GrpcLimits, GrpcServer};
use tollgate_server::{HttpApi, QuotaBounds};
use tollgate_store::SystemClock;
use tollgate_testkit::envoy::{Envoy, Upstream, UpstreamReply, Version, with_ports};

use crate::harness::{HttpClient, policy};
use crate::running_server::RunningServer;

/// The files of the examples.
const ENVOY: &str = include_str!("../../../../../examples/envoy/quotas.yaml");
const LIMITS: &str = include_str!("../../../../../examples/envoy/quotas-policy.yaml");
/// The limit of the example.
pub(super) const RATE: f64 = 20.0;
pub(super) const BURST: f64 = 20.0;

/// Several report intervals of Envoy, and far above any duration here.
const DEADLINE: Duration = Duration::from_secs(90);
const STEP: Duration = Duration::from_millis(10);

pub(super) struct RlqsHarness {
    pub(super) server: RestartableServer,
    pub(super) envoys: Vec<Envoy>,
    _upstream: Upstream,
}

/// A server that can be restarted.
pub(super) struct RestartableServer {
    pub(super) app: Arc<HttpApi<SystemClock>>,
    running: RunningServer,
}

impl RestartableServer {
    async fn start(at: SocketAddr, bounds: QuotaBounds) -> Self {
        let app = HttpApi::new(&policy(LIMITS), 1_000, SystemClock::new()).unwrap();
        let app = Arc::new(app.with_quota_bounds(bounds));
        let grpc = Arc::new(GrpcServer::new(Arc::clone(app.envoy())));
        let limits = GrpcLimits::default();
        let serve = |listener, shutdown| grpc.run(listener, limits, shutdown);
        let running = RunningServer::start_at(at, serve).await;
        Self { app, running }
    }

    /// Stops the server.
    pub(super) async fn stop(self) {
        self.running.stop().await;
    }

    /// Stops the server and starts another at the same address.
    pub(super) async fn restart(self, bounds: QuotaBounds) -> Self {
        let address = self.running.address;
        self.running.stop().await;
        Self::start(address, bounds).await
    }
}

impl RlqsHarness {
    /// The example with these Envoys, which deny everything without an assignment.
    pub(super) async fn strict(versions: &[Version], bounds: QuotaBounds) -> Self {
        let tokens = "fallback_rate_limit: { token_bucket: { max_tokens: 5, tokens_per_fill: 5, fill_interval: 1s } }";
        let strict = ENVOY
            .replace("ALLOW_ALL", "DENY_ALL")
            .replace(tokens, "fallback_rate_limit: { blanket_rule: DENY_ALL }");
        assert!(!strict.contains(tokens) && !strict.contains("ALLOW_ALL"));
        Self::before(versions, &strict, bounds).await
    }

    /// The example as it is.
    pub(super) async fn example(version: Version, bounds: QuotaBounds) -> Self {
        Self::before(&[version], ENVOY, bounds).await
    }

    async fn before(versions: &[Version], envoy: &str, bounds: QuotaBounds) -> Self {
        let server = RestartableServer::start(SocketAddr::from(([127, 0, 0, 1], 0)), bounds).await;
        let upstream = Upstream::answering(|_| UpstreamReply::new(200).saying("fine\n"));
        let ports = [
            (9901, 0),
            (10000, 0),
            (8081, server.running.address.port()),
            (3000, upstream.address().port()),
        ];
        let bootstrap = with_ports(envoy, &ports);
        let start = |version: &Version| Envoy::start(*version, &bootstrap);
        Self {
            server,
            envoys: versions.iter().map(start).collect(),
            _upstream: upstream,
        }
    }
}

/// Requests to the shared bucket of the example, at a rate that can be changed.
pub(super) struct Load {
    /// Steps between two requests.
    every: Arc<AtomicU64>,
    admitted: Arc<Mutex<Vec<Instant>>>,
    _task: JoinSet<()>,
}

impl Load {
    /// Starts load on an Envoy at this many requests per second.
    pub(super) async fn on(envoy: &Envoy, a_second: u64) -> Self {
        let mut client = HttpClient::to(envoy.listener("edge")).await;
        let every = Arc::new(AtomicU64::new(100 / a_second));
        let admitted = Arc::new(Mutex::new(Vec::new()));
        let (pace, kept) = (Arc::clone(&every), Arc::clone(&admitted));
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut steps = interval(STEP);
            steps.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let mut left = 0_u64;
            loop {
                steps.tick().await;
                left = left.saturating_sub(1).min(pace.load(Ordering::Relaxed));
                if left > 0 {
                    continue;
                }
                left = pace.load(Ordering::Relaxed);
                let answer = client.get("/").await;
                match answer.status {
                    200 => kept.lock().unwrap().push(Instant::now()),
                    429 => {}
                    other => panic!("{other}: {}", answer.body),
                }
            }
        });
        Self {
            every,
            admitted,
            _task: task,
        }
    }

    pub(super) fn pace(&self, a_second: u64) {
        self.every.store(100 / a_second, Ordering::Relaxed);
    }

    /// When requests were admitted.
    pub(super) fn admitted(&self) -> Vec<Instant> {
        let kept = self.admitted.lock();
        kept.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How many were admitted since then.
    pub(super) fn since(&self, then: Instant) -> usize {
        self.admitted().iter().filter(|at| **at >= then).count()
    }

    /// How many were admitted in the last `seconds`.
    pub(super) fn recent(&self, seconds: u64) -> usize {
        self.since(Instant::now() - Duration::from_secs(seconds))
    }
}

/// Polls until the condition holds.
pub(super) async fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let waiting = async {
        let mut looks = interval(STEP * 5);
        while !is_so() {
            looks.tick().await;
        }
    };
    assert!(timeout(DEADLINE, waiting).await.is_ok(), "{what}");
}

/// By how much the admissions of any interval exceed what the rate refills in it.
pub(super) fn excess(mut all: Vec<Instant>, rate: f64) -> f64 {
    all.sort();
    let Some(first) = all.first().copied() else {
        return 0.0;
    };
    let mut lowest = f64::INFINITY;
    let mut most = 0.0_f64;
    let mut before = 0.0;
    for at in all {
        let back = rate * at.duration_since(first).as_secs_f64();
        lowest = lowest.min(before - back);
        before += 1.0;
        most = most.max(before - back - lowest);
    }
    most
}

#[test]
fn control_an_excess_over_the_rate_is_detected_anywhere() {
    let start = Instant::now();
    let at = |millis| start + Duration::from_millis(millis);
    // Ten a second for ten seconds at a rate of ten: one is available at any time.
    let even: Vec<Instant> = (0..100).map(|n| at(n * 100)).collect();
    assert!(excess(even.clone(), 10.0) < 1.1);
    // Thirty at once in the middle.
    let burst = (0..30).map(|_| at(5_050)).chain(even.clone()).collect();
    let found = excess(burst, 10.0);
    assert!((30.0..32.0).contains(&found), "{found}");
    // Twice the rate all the time.
    let twice = even.iter().copied().chain(even.iter().copied()).collect();
    assert!(excess(twice, 10.0) > 90.0);
}
