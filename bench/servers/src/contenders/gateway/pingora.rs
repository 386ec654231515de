//! A proxy on pingora-proxy: the program in `bench/pingora`.
//!
//! pingora-limits counts by an estimate. Must not know: how anything is measured.

use std::path::Path;
use std::process::Command;
use std::rc::Rc;

use super::{Folder, Proxy, Quota, Upstream};
use crate::process::{Server, free_addresses};

pub(super) fn start(program: &Path, upstream: &Upstream, quota: Quota) -> Result<Proxy, String> {
    let [address] = free_addresses()?;
    let (folder, _) = Folder::with_file("pingora", address, "nothing", |_| String::new())?;
    let mut command = Command::new(program);
    command
        .arg(address.to_string())
        .arg(upstream.address.to_string())
        .arg(quota.burst().to_string())
        .current_dir(&folder.0);
    let server = Server::start(&mut command, &[address])?;
    Ok(Proxy {
        name: "pingora-proxy",
        server: Rc::new(server),
        http1: address,
        http2: address,
        upstream: Rc::clone(&upstream.server),
        quota,
        _folder: folder,
    })
}
