//! One Envoy: started from a bootstrap, awaited, asked what it counted, and stopped when dropped.
//!
//! Must not know: what its filters ask, and whom.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

use super::admin;
use crate::peers;
use crate::process::{Process, TempFolder, failed};

/// A version that we promise to work with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// 1.40, the newest.
    V1_40,
    /// 1.36, the oldest.
    V1_36,
}

impl Version {
    /// The program.
    ///
    /// # Errors
    /// It is not there. The message is the command that installs it.
    pub fn look_up(self) -> Result<PathBuf, String> {
        match self {
            Self::V1_40 => peers::look_up("Envoy 1.40", "envoy-1.40/envoy/_bin/envoy"),
            Self::V1_36 => peers::look_up("Envoy 1.36", "envoy-1.36/envoy/_bin/envoy"),
        }
    }
}

/// A running Envoy. It ends, with its folder, when this is dropped.
#[derive(Debug)]
pub struct Envoy {
    process: Process,
    admin: SocketAddr,
}

impl Envoy {
    /// Starts one, and waits until it serves. Listeners and the administration interface may have port 0: Envoy chooses,
    /// and nobody can take a port in between.
    ///
    /// # Panics
    /// The program is missing (the message is the command that installs it), or it does not come up.
    #[must_use]
    pub fn start(version: Version, bootstrap: &str) -> Self {
        let program = version.look_up().unwrap_or_else(|missing| failed(&missing));
        Self::try_start(&program, bootstrap)
            .unwrap_or_else(|error| failed(&format!("Envoy did not start: {error}")))
    }

    /// Where the listener of this name listens.
    ///
    /// # Panics
    /// There is no such listener.
    #[must_use]
    pub fn listener(&self, name: &str) -> SocketAddr {
        admin::get(self.admin, "/listeners")
            .and_then(|listeners| admin::listener(&listeners, name))
            .unwrap_or_else(|| failed(&format!("Envoy has no listener `{name}`")))
    }

    /// What it has counted under this name; what it never counted is 0.
    ///
    /// # Panics
    /// It does not answer.
    #[must_use]
    pub fn counted(&self, name: &str) -> u64 {
        let stats = admin::get(self.admin, "/stats");
        let stats = stats.unwrap_or_else(|| failed("Envoy does not say what it counted"));
        admin::number(&stats, name).unwrap_or(0)
    }

    /// Waits until it has counted at least so many.
    ///
    /// # Panics
    /// It does not.
    pub fn until_counted(&self, name: &str, least: u64) {
        let is_there = || (self.counted(name) >= least).then_some(());
        let what = format!("{name} >= {least}");
        if let Err(error) = self.process.until(&what, is_there) {
            failed(&error);
        }
    }

    fn try_start(program: &std::path::Path, bootstrap: &str) -> Result<Self, String> {
        let folder = TempFolder::new("envoy")?;
        let settings = folder.write("envoy.yaml", bootstrap)?;
        let found = folder.path().join("admin");
        let mut command = Command::new(program);
        command
            .arg("--config-path")
            .arg(&settings)
            .arg("--admin-address-path")
            .arg(&found)
            // Nothing is shared with another Envoy on this machine, not even a piece of memory by its number.
            .arg("--disable-hot-restart")
            .args(["--concurrency", "1", "--log-level", "warning"]);
        let process = Process::start("Envoy", &mut command, folder)?;
        let admin = process.until("an administration interface", || {
            fs::read_to_string(&found).ok()?.parse().ok()
        })?;
        process.until("being ready", || admin::get(admin, "/ready"))?;
        Ok(Self { process, admin })
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;

    use super::*;
    use crate::envoy::{Upstream, UpstreamReply, with_ports};

    /// The least that proxies.
    const PLAIN: &str = r#"
admin: { address: { socket_address: { address: 127.0.0.1, port_value: 9901 } } }
static_resources:
  listeners:
  - name: edge
    address: { socket_address: { address: 127.0.0.1, port_value: 10000 } }
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: edge
          route_config: { virtual_hosts: [{ name: all, domains: ["*"], routes: [{ match: { prefix: / }, route: { cluster: upstream } }] }] }
          http_filters: [{ name: router, typed_config: { "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router } }]
  clusters:
  - name: upstream
    load_assignment:
      cluster_name: upstream
      endpoints: [{ lb_endpoints: [{ endpoint: { address: { socket_address: { address: 127.0.0.1, port_value: 3000 } } } }] }]
"#;

    fn get(address: SocketAddr, target: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        let request = format!("GET {target} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn every_version_starts_proxies_counts_and_stops() {
        for version in [Version::V1_40, Version::V1_36] {
            let upstream = Upstream::answering(|seen| {
                UpstreamReply::new(201)
                    .with("x-target", &seen.target)
                    .saying("hello")
            });
            let port = upstream.address().port();
            let bootstrap = with_ports(PLAIN, &[(9901, 0), (10000, 0), (3000, port)]);
            let envoy = Envoy::start(version, &bootstrap);
            let edge = envoy.listener("edge");
            let answer = get(edge, "/some/path?a=1");
            assert!(answer.starts_with("HTTP/1.1 201 Created\r\n"), "{answer}");
            assert!(
                answer.contains("\r\nx-target: /some/path?a=1\r\n"),
                "{answer}"
            );
            assert!(answer.ends_with("\r\n\r\nhello"), "{answer}");
            envoy.until_counted("cluster.upstream.upstream_rq_201", 1);
            assert_eq!(envoy.counted("cluster.upstream.no_such_number"), 0);
            drop(envoy);
            assert!(TcpStream::connect(edge).is_err());
        }
    }

    #[test]
    fn a_bootstrap_that_is_wrong_fails_with_what_envoy_says() {
        let program = Version::V1_40.look_up().unwrap();
        let error = Envoy::try_start(&program, "admni: {}").unwrap_err();
        assert!(error.contains("admni"), "{error}");
    }
}
