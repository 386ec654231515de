//! The proxies: our gateway without a parameter, and Envoy with its adaptive concurrency filter, with a static limit and without.
//!
//! Each is one process with one upstream. Must not know: traces, scores.

use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;

use tollgate_testkit::process::{Process, TempFolder, free_address};

use super::{Failure, Options, REAL_WORKERS};

const POLICY: &str = "overload: { adaptive_concurrency: enforce }\nlimits: none\n";
const UNBOUNDED: u32 = 1_000_000;

/// What decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ContenderKind {
    Tollgate,
    /// The example of the filter's documentation, which sets more than its defaults.
    EnvoyAdaptive,
    /// A circuit breaker at the number of workers: somebody has to know it.
    EnvoyStatic,
    EnvoyUnlimited,
}

/// All that can run.
pub(super) const fn all(has_envoy: bool) -> &'static [ContenderKind] {
    use ContenderKind::{EnvoyAdaptive, EnvoyStatic, EnvoyUnlimited, Tollgate};
    match has_envoy {
        true => &[Tollgate, EnvoyAdaptive, EnvoyStatic, EnvoyUnlimited],
        false => &[Tollgate],
    }
}

/// A running proxy.
pub(super) struct Contender {
    kind: ContenderKind,
    address: SocketAddr,
    /// Ends with the contender.
    _process: Process,
}

impl Contender {
    pub(super) fn start(
        kind: ContenderKind,
        options: &Options,
        upstream: SocketAddr,
    ) -> Result<Self, Failure> {
        let address = free_address()?;
        let folder = TempFolder::new("overload")?;
        let mut command = match (kind, &options.envoy) {
            (ContenderKind::Tollgate, _) => {
                let policy = folder.write("policy.yaml", POLICY)?;
                tollgate(&options.tollgate, &policy, address, upstream)
            }
            (_, Some(program)) => {
                let file = folder.write("envoy.yaml", &bootstrap(kind, address, upstream))?;
                envoy(program, &file)
            }
            (_, None) => return Err("Envoy is not there".into()),
        };
        let process = Process::start("proxy", &mut command, folder)?;
        process.until("it listens", || TcpStream::connect(address).ok())?;
        Ok(Self {
            kind,
            address,
            _process: process,
        })
    }

    pub(super) const fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) const fn name(&self) -> &'static str {
        match self.kind {
            ContenderKind::Tollgate => "tollgate",
            ContenderKind::EnvoyAdaptive => "Envoy, adaptive concurrency",
            ContenderKind::EnvoyStatic => "Envoy, circuit breaker of 12 requests",
            ContenderKind::EnvoyUnlimited => "Envoy, no limit",
        }
    }
}

fn tollgate(program: &Path, policy: &Path, address: SocketAddr, upstream: SocketAddr) -> Command {
    let mut command = Command::new(program);
    command
        .arg("serve")
        .arg("--config")
        .arg(policy)
        .args(["--upstream", &format!("http://{upstream}")])
        .args(["--listen-gateway", &address.to_string()]);
    for listener in [
        "--listen",
        "--listen-grpc",
        "--listen-resp",
        "--listen-admin",
    ] {
        command.args([listener, "off"]);
    }
    command
}

fn envoy(program: &Path, file: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .arg("-c")
        .arg(file)
        .args(["--concurrency", "1", "--use-dynamic-base-id"])
        .args(["--log-level", "error"]);
    command
}

/// Only the limit differs. All other limits of Envoy are out of the way, and the route has no timeout.
fn bootstrap(kind: ContenderKind, address: SocketAddr, upstream: SocketAddr) -> String {
    let types = "type.googleapis.com/envoy.extensions.filters";
    let filter = match kind {
        ContenderKind::EnvoyAdaptive => format!(
            r#"
          - name: envoy.filters.http.adaptive_concurrency
            typed_config:
              "@type": {types}.http.adaptive_concurrency.v3.AdaptiveConcurrency
              gradient_controller_config:
                sample_aggregate_percentile: {{ value: 90 }}
                concurrency_limit_params: {{ concurrency_update_interval: 0.1s }}
                min_rtt_calc_params: {{ jitter: {{ value: 10 }}, interval: 60s, request_count: 50 }}
              enabled: {{ default_value: true, runtime_key: adaptive_concurrency.enabled }}"#
        ),
        _ => String::new(),
    };
    let most = match kind {
        ContenderKind::EnvoyStatic => REAL_WORKERS,
        _ => UNBOUNDED,
    };
    let (ip, port) = (address.ip(), address.port());
    let (upstream_ip, upstream_port) = (upstream.ip(), upstream.port());
    format!(
        r#"static_resources:
  listeners:
  - name: http
    address: {{ socket_address: {{ address: {ip}, port_value: {port} }} }}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": {types}.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: bench
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes:
              - match: {{ prefix: "/" }}
                route: {{ cluster: service, timeout: 0s }}
          http_filters:{filter}
          - name: envoy.filters.http.router
            typed_config:
              "@type": {types}.http.router.v3.Router
  clusters:
  - name: service
    type: STATIC
    connect_timeout: 5s
    circuit_breakers:
      thresholds:
      - {{ max_requests: {most}, max_connections: {UNBOUNDED}, max_pending_requests: {UNBOUNDED} }}
    load_assignment:
      cluster_name: service
      endpoints:
      - lb_endpoints:
        - endpoint: {{ address: {{ socket_address: {{ address: {upstream_ip}, port_value: {upstream_port} }} }} }}
"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_limit_differs() {
        let here = SocketAddr::from(([127, 0, 0, 1], 1));
        let text = |kind| bootstrap(kind, here, here);
        let unlimited = text(ContenderKind::EnvoyUnlimited);
        let fixed = text(ContenderKind::EnvoyStatic);
        assert_eq!(
            fixed.replace("max_requests: 12,", "max_requests: 1000000,"),
            unlimited
        );
        let adaptive = text(ContenderKind::EnvoyAdaptive);
        assert!(adaptive.contains("gradient_controller_config"));
        let lines = |text: &str| text.lines().count();
        assert_eq!(lines(&adaptive), lines(&unlimited) + 8);
    }
}
