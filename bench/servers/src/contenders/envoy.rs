//! Envoy with its local rate limit filter, a bucket for each value of a header, and an answer of its own.
//!
//! Must not know: how anything is measured.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;

use super::{BURST, COUNT, Contender, PERIOD};
use crate::load::http::Requests;
use crate::process::{Server, free_addresses};

pub(crate) struct Envoy {
    server: Rc<Server>,
    address: SocketAddr,
    folder: PathBuf,
}

impl Envoy {
    /// Starts it with one worker and room for so many keys.
    pub(crate) fn start(program: &Path, keys: u32) -> Result<Self, String> {
        let [address] = free_addresses()?;
        let name = format!("tollgate-bench-envoy-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let settings = folder.join("envoy.yaml");
        std::fs::create_dir_all(&folder)
            .and_then(|()| std::fs::write(&settings, bootstrap(address, keys)))
            .map_err(|error| format!("{}: {error}", folder.display()))?;
        let mut command = Command::new(program);
        command
            .arg("-c")
            .arg(&settings)
            .args(["--concurrency", "1", "--use-dynamic-base-id"]);
        let server = Server::start(&mut command, &[address])?;
        Ok(Self {
            server: Rc::new(server),
            address,
            folder,
        })
    }

    pub(crate) fn http(&self) -> Contender {
        let talk = || Requests::get_with_field("x-api-key");
        // It closes connections on which many requests come at once, so it is filled one by one.
        Contender::new("Envoy, local rate limit", &self.server, self.address, talk).stalling()
    }
}

impl Drop for Envoy {
    fn drop(&mut self) {
        if std::fs::remove_dir_all(&self.folder).is_err() {
            eprintln!("{} could not be removed", self.folder.display());
        }
    }
}

/// A descriptor without a value has a bucket for each value, as many as are allowed.
fn bootstrap(address: SocketAddr, keys: u32) -> String {
    let (ip, port) = (address.ip(), address.port());
    let types = "type.googleapis.com/envoy.extensions.filters";
    let keys = keys.saturating_mul(2);
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
          generate_request_id: false
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes:
              - match: {{ prefix: "/" }}
                direct_response: {{ status: 200, body: {{ inline_string: "ok" }} }}
          http_filters:
          - name: envoy.filters.http.local_ratelimit
            typed_config:
              "@type": {types}.http.local_ratelimit.v3.LocalRateLimit
              stat_prefix: bench
              filter_enabled: {{ default_value: {{ numerator: 100 }} }}
              filter_enforced: {{ default_value: {{ numerator: 100 }} }}
              token_bucket: {{ max_tokens: {BURST}, tokens_per_fill: {BURST}, fill_interval: 1s }}
              always_consume_default_token_bucket: false
              max_dynamic_descriptors: {keys}
              rate_limits:
              - actions: [{{ request_headers: {{ header_name: x-api-key, descriptor_key: user }} }}]
              descriptors:
              - entries: [{{ key: user }}]
                token_bucket: {{ max_tokens: {BURST}, tokens_per_fill: {COUNT}, fill_interval: {PERIOD}s }}
          - name: envoy.filters.http.router
            typed_config:
              "@type": {types}.http.router.v3.Router
"#
    )
}
