//! `tollgate serve --upstream`, with a policy of one limit.
//!
//! Must not know: how anything is measured.

use std::path::Path;
use std::process::Command;
use std::rc::Rc;

use super::super::{COUNT, PERIOD};
use super::{CONNECTIONS, Folder, KEYS, Proxy, Quota, Upstream};
use crate::process::{Server, free_addresses};

pub(super) const NAME: &str = "tollgate";

pub(super) fn start(program: &Path, upstream: &Upstream, quota: Quota) -> Result<Proxy, String> {
    let [address, api] = free_addresses()?;
    let (folder, policy) = Folder::with_file(NAME, address, "policy.yaml", |_| policy(quota))?;
    let mut command = Command::new(program);
    command
        .arg("serve")
        .arg("--config")
        .arg(&policy)
        .args(["--upstream", &format!("http://{}", upstream.address)])
        .args(["--listen-gateway", &address.to_string()])
        .args(["--listen", &api.to_string(), "--listen-resp", "off"])
        .args(["--listen-grpc", "off", "--listen-admin", "off"])
        .args(["--max-connections", &CONNECTIONS.to_string()])
        .args(["--keys", &KEYS.to_string()]);
    let server = Server::start(&mut command, &[address])?;
    Ok(Proxy {
        name: NAME,
        server: Rc::new(server),
        http1: address,
        http2: address,
        upstream: Rc::clone(&upstream.server),
        quota,
        _folder: folder,
    })
}

fn policy(quota: Quota) -> String {
    let count = match quota {
        Quota::Generous => COUNT,
        Quota::One => 1,
    };
    let burst = quota.burst();
    format!(
        "limits:\n  - name: per-key\n    key: header.x-api-key\n    rate: {count}/{PERIOD}s\n    burst: {burst}\n"
    )
}
