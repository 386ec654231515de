//! Envoy with its local rate limit filter, a bucket for each value of a header, and a router before the upstream.
//!
//! Must not know: how anything is measured.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::rc::Rc;

use super::super::PERIOD;
use super::{ENVOY, Folder, KEYS, Proxy, Quota, Upstream};
use crate::process::{Server, free_addresses};

pub(super) fn start(program: &Path, upstream: &Upstream, quota: Quota) -> Result<Proxy, String> {
    let [address] = free_addresses()?;
    let text = bootstrap(address, upstream.address, quota);
    let (folder, settings) = Folder::with_file("envoy", address, "envoy.yaml", |_| text)?;
    let mut command = Command::new(program);
    command
        .arg("-c")
        .arg(&settings)
        .args(["--concurrency", "1", "--use-dynamic-base-id"]);
    let server = Server::start(&mut command, &[address])?;
    Ok(Proxy {
        name: ENVOY,
        server: Rc::new(server),
        http1: address,
        http2: address,
        upstream: Rc::clone(&upstream.server),
        quota,
        _folder: folder,
    })
}

/// A descriptor without a value has a bucket for each value, as many as are allowed.
fn bootstrap(address: SocketAddr, upstream: SocketAddr, quota: Quota) -> String {
    let (ip, port) = (address.ip(), address.port());
    let (upstream_ip, upstream_port) = (upstream.ip(), upstream.port());
    let types = "type.googleapis.com/envoy.extensions.filters";
    let burst = quota.burst();
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
          use_remote_address: true
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes:
              - match: {{ prefix: "/" }}
                route: {{ cluster: service }}
          http_filters:
          - name: envoy.filters.http.local_ratelimit
            typed_config:
              "@type": {types}.http.local_ratelimit.v3.LocalRateLimit
              stat_prefix: bench
              filter_enabled: {{ default_value: {{ numerator: 100 }} }}
              filter_enforced: {{ default_value: {{ numerator: 100 }} }}
              token_bucket: {{ max_tokens: 4000000000, tokens_per_fill: 4000000000, fill_interval: 1s }}
              always_consume_default_token_bucket: false
              max_dynamic_descriptors: {KEYS}
              rate_limits:
              - actions: [{{ request_headers: {{ header_name: x-api-key, descriptor_key: user }} }}]
              descriptors:
              - entries: [{{ key: user }}]
                token_bucket: {{ max_tokens: {burst}, tokens_per_fill: 1, fill_interval: {PERIOD}s }}
          - name: envoy.filters.http.router
            typed_config:
              "@type": {types}.http.router.v3.Router
  clusters:
  - name: service
    type: STATIC
    connect_timeout: 5s
    load_assignment:
      cluster_name: service
      endpoints:
      - lb_endpoints:
        - endpoint: {{ address: {{ socket_address: {{ address: {upstream_ip}, port_value: {upstream_port} }} }} }}
"#
    )
}
