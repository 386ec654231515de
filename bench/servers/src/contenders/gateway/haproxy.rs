//! HAProxy with a stick table, one thread.
//!
//! It counts rejected requests too, so a key that is rejected stays rejected. Must not know: how anything is measured.

use std::net::SocketAddr;
use std::process::Command;
use std::rc::Rc;

use super::super::PERIOD;
use super::{CONNECTIONS, Folder, KEYS, Proxy, Quota, Upstream};
use crate::process::{Server, free_addresses};

pub(super) fn start(upstream: &Upstream, quota: Quota) -> Result<Proxy, String> {
    let [http1, http2] = free_addresses()?;
    let text = configuration([http1, http2], upstream.address, quota);
    let (folder, settings) = Folder::with_file("haproxy", http1, "haproxy.cfg", |_| text)?;
    let mut command = Command::new("haproxy");
    command.args(["-db", "-f"]).arg(&settings);
    let server = Server::start(&mut command, &[http1, http2])?;
    Ok(Proxy {
        name: "HAProxy, stick table",
        server: Rc::new(server),
        http1,
        http2,
        upstream: Rc::clone(&upstream.server),
        quota,
        _folder: folder,
    })
}

fn configuration([http1, http2]: [SocketAddr; 2], upstream: SocketAddr, quota: Quota) -> String {
    let burst = quota.burst();
    format!(
        r"global
  nbthread 1
  maxconn {CONNECTIONS}
  no strict-limits
defaults
  mode http
  timeout connect 5s
  timeout client 600s
  timeout server 600s
  timeout http-keep-alive 600s
  option forwardfor
  http-reuse always
frontend clients
  bind {http1} backlog 4096
  bind {http2} proto h2 backlog 4096
  stick-table type string len 32 size {KEYS} expire {PERIOD}s store http_req_rate({PERIOD}s)
  unique-id-format %{{+X}}o\ %ci:%cp_%fi:%fp_%Ts_%rt:%pid
  unique-id-header X-Request-Id
  http-request track-sc0 req.hdr(x-api-key)
  http-request deny deny_status 429 if {{ sc_http_req_rate(0) gt {burst} }}
  http-request set-header X-Real-IP %[src]
  http-request set-header X-Forwarded-Host %[req.hdr(host)]
  http-request set-header X-Forwarded-Proto http
  default_backend service
backend service
  server upstream {upstream}
"
    )
}
