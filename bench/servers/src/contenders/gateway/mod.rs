//! Proxies with limits before the same upstream: ours and others, each with one worker.
//!
//! All add the fields that name the client and a request id, where they have one, and keep connections to the upstream. Must not
//! know: how anything is measured.

mod envoy;
mod haproxy;
mod nginx;
mod ours;
mod pingora;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::rc::Rc;

use super::{BURST, Contender};
use crate::cores::Placement;
use crate::floors::{CHILD, UPSTREAM};
use crate::load::http::Requests;
use crate::load::http2::Streams;
use crate::options::Options;
use crate::process::{Server, free_addresses};

pub(crate) const NGINX: &str = "nginx limit_req";
pub(crate) const ENVOY: &str = "Envoy, local rate limit";

/// Keys that proxies have room for.
const KEYS: u32 = 100_000;
/// Clients that are connected at the same time, at most.
const CONNECTIONS: u32 = 15_000;

/// How many requests a key may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quota {
    /// So many that none is rejected.
    Generous,
    /// One, so that all others are rejected.
    One,
}

impl Quota {
    /// Requests at once.
    const fn burst(self) -> u32 {
        match self {
            Self::Generous => BURST,
            Self::One => 1,
        }
    }
}

/// The server behind all proxies, on the core of the load.
pub(crate) struct Upstream {
    server: Rc<Server>,
    address: SocketAddr,
}

/// A proxy that runs.
pub(crate) struct Proxy {
    name: &'static str,
    server: Rc<Server>,
    http1: SocketAddr,
    http2: SocketAddr,
    upstream: Rc<Server>,
    quota: Quota,
    _folder: Folder,
}

/// Files of a proxy, which are removed with it.
struct Folder(PathBuf);

impl Upstream {
    pub(crate) fn start() -> Result<Self, String> {
        let [address] = free_addresses()?;
        let this = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut command = Command::new(this);
        command.args([CHILD, UPSTREAM, &address.to_string()]);
        let server = Server::start_at(Placement::LoadCore, &mut command, &[address])?;
        Ok(Self {
            server: Rc::new(server),
            address,
        })
    }

    /// The upstream without a proxy.
    pub(crate) fn direct(&self) -> Contender {
        Contender::new("no proxy", &self.server, self.address, Requests::api)
    }
}

impl Proxy {
    /// Ours first, then all that are installed.
    pub(crate) fn start_all(
        options: &Options,
        upstream: &Upstream,
        quota: Quota,
    ) -> Result<Vec<Self>, String> {
        let mut all = vec![
            ours::start(&options.tollgate, upstream, quota)?,
            nginx::start(upstream, quota)?,
            haproxy::start(upstream, quota)?,
        ];
        if let Some(program) = &options.envoy {
            all.push(envoy::start(program, upstream, quota)?);
        }
        if let Some(program) = &options.pingora {
            all.push(pingora::start(program, upstream, quota)?);
        }
        Ok(all)
    }

    pub(crate) fn http1(&self) -> Contender {
        let contender = match self.quota {
            Quota::Generous => Contender::new(self.name, &self.server, self.http1, Requests::api),
            Quota::One => {
                let rejected = || Requests::api().rejected();
                Contender::new(self.name, &self.server, self.http1, rejected)
            }
        };
        self.finish(contender)
    }

    pub(crate) fn http2(&self) -> Contender {
        self.finish(Contender::new(
            self.name,
            &self.server,
            self.http2,
            Streams::new,
        ))
    }

    fn finish(&self, contender: Contender) -> Contender {
        // Some close a connection on which many requests come at once.
        let contender = contender.stalling().forwarding_to(&self.upstream);
        match self.name == ours::NAME {
            true => contender.ours(),
            false => contender,
        }
    }
}

impl Folder {
    /// A folder with one file. Returns the path of the file too.
    fn with_file(
        name: &str,
        address: SocketAddr,
        file: &str,
        text: impl FnOnce(&std::path::Path) -> String,
    ) -> Result<(Self, PathBuf), String> {
        let folder = format!("tollgate-bench-gateway-{name}-{}", address.port());
        let folder = std::env::temp_dir().join(folder);
        let path = folder.join(file);
        std::fs::create_dir_all(&folder)
            .and_then(|()| std::fs::write(&path, text(&folder)))
            .map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok((Self(folder), path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if std::fs::remove_dir_all(&self.0).is_err() {
            eprintln!("{} could not be removed", self.0.display());
        }
    }
}
