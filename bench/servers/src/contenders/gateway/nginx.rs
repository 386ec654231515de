//! nginx with `limit_req` and `proxy_pass`, one process.
//!
//! Its longest period for one request is a minute. Must not know: how anything is measured.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::rc::Rc;

use super::super::nginx::program;
use super::{CONNECTIONS, Folder, NGINX, Proxy, Quota, Upstream};
use crate::process::{Server, free_addresses};

pub(super) fn start(upstream: &Upstream, quota: Quota) -> Result<Proxy, String> {
    let [http1, http2] = free_addresses()?;
    let (folder, settings) = Folder::with_file("nginx", http1, "nginx.conf", |folder| {
        configuration(folder, [http1, http2], upstream.address, quota)
    })?;
    let mut command = Command::new(program()?);
    command
        .arg("-p")
        .arg(&folder.0)
        .arg("-c")
        .arg(&settings)
        .args(["-e", "stderr"]);
    let server = Server::start(&mut command, &[http1, http2])?;
    Ok(Proxy {
        name: NGINX,
        server: Rc::new(server),
        http1,
        http2,
        upstream: Rc::clone(&upstream.server),
        quota,
        _folder: folder,
    })
}

fn configuration(
    folder: &Path,
    [http1, http2]: [SocketAddr; 2],
    upstream: SocketAddr,
    quota: Quota,
) -> String {
    let folder = folder.display();
    let burst = match quota {
        Quota::Generous => format!("burst={} nodelay", quota.burst()),
        Quota::One => String::new(),
    };
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|kind| format!("  {kind}_temp_path {folder}/{kind};\n"))
        .collect();
    format!(
        r#"daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log stderr crit;
worker_rlimit_nofile {CONNECTIONS};
events {{ worker_connections {CONNECTIONS}; }}
http {{
{temporary}  access_log off;
  keepalive_requests 1000000000;
  keepalive_timeout 600s;
  limit_req_zone $http_x_api_key zone=keys:64m rate=1r/m;
  limit_req_status 429;
  upstream service {{
    server {upstream};
    keepalive 256;
    keepalive_requests 1000000000;
    keepalive_timeout 600s;
  }}
  server {{
    listen {http1} backlog=4096;
    listen {http2} http2 backlog=4096;
    location / {{
      limit_req zone=keys {burst};
      proxy_pass http://service;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Host $host;
      proxy_set_header X-Real-IP $remote_addr;
      proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
      proxy_set_header X-Forwarded-Host $host;
      proxy_set_header X-Forwarded-Proto $scheme;
      proxy_set_header X-Request-Id $request_id;
    }}
  }}
}}
"#
    )
}
