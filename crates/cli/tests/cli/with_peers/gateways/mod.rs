//! Gateways that ask Tollgate about each request, with the files of `examples/` and the ports of the test.
//!
//! All gateways run the checks of `shared_checks.rs`; each has its own file. Must not know: how requests are decided.

mod caddy;
mod haproxy;
mod shared_checks;
mod traefik;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

use tollgate_testkit::process::{Process, TempFolder, free_address};

use super::client::RawRequest;
use super::server::Server;
use super::upstream::Upstream;
use crate::harness::repository;

/// How often to try to start, because another process may take the free port first.
const ATTEMPTS: u32 = 5;

/// The addresses in the examples, which tests replace.
pub(crate) const LISTEN_PORT: &str = ":8000";
pub(crate) const TOLLGATE: &str = "127.0.0.1:8080";
pub(crate) const APP: &str = "127.0.0.1:3000";

/// Clients, by the last number of their address. The gateways are 127.0.0.1.
const ALICE: u8 = 2;
const BOB: u8 = 3;
const CROWD: u8 = 4;
/// The client that probes whether a gateway is up.
const PROBE: u8 = 99;

/// `orders` matches only if the gateway reports the real method, path, host and query of the client.
const POLICY: &str = "
limits:
  - name: per-address
    key: ip
    rate: 100/h
  - name: orders
    match: { method: POST, path: /orders, host: shop.example, query.page: present }
    key: ip
    rate: 3/h
";

/// A gateway and how to start it.
struct GatewayKind {
    /// Its folder in `examples`.
    name: &'static str,
    program: fn() -> PathBuf,
    arguments: &'static [&'static str],
}

/// A running gateway.
struct Gateway {
    address: SocketAddr,
    /// Kills the gateway on drop.
    _process: Process,
}

/// A gateway, Tollgate and an upstream.
struct GatewayFixture {
    gateway: Gateway,
    server: Server,
    upstream: Upstream,
}

impl GatewayFixture {
    /// Starts the gateway with its example.
    fn new(kind: &GatewayKind) -> Self {
        Self::with(kind, |text| text)
    }

    /// Starts the gateway with changed files.
    fn with(kind: &GatewayKind, change: impl Fn(String) -> String) -> Self {
        let server = Server::start(POLICY);
        let upstream = Upstream::start();
        let settings = |text: String, listen: SocketAddr| {
            let text = text
                .replace(TOLLGATE, &server.http.to_string())
                .replace(APP, &upstream.address.to_string())
                .replace(LISTEN_PORT, &format!(":{}", listen.port()));
            change(text)
        };
        let mut last = String::new();
        for _ in 0..ATTEMPTS {
            match Gateway::start(kind, &settings) {
                Ok(gateway) => {
                    return Self {
                        gateway,
                        server,
                        upstream,
                    };
                }
                Err(error) => last = error,
            }
        }
        panic!("{} did not start: {last}", kind.name)
    }

    /// How many requests reached the upstream since `before`.
    fn passed_since(&self, before: usize) -> usize {
        self.upstream.answered() - before
    }
}

impl Gateway {
    fn start(
        kind: &GatewayKind,
        settings: &impl Fn(String, SocketAddr) -> String,
    ) -> Result<Self, String> {
        let address = free_address()?;
        let folder = TempFolder::new(kind.name)?;
        for (name, text) in example(kind.name) {
            folder.write(&name, &settings(text, address))?;
        }
        let mut command = Command::new((kind.program)());
        command
            .args(kind.arguments)
            .current_dir(folder.path())
            // Some gateways write files to HOME.
            .env("HOME", folder.path())
            .env_remove("XDG_CONFIG_HOME")
            .env_remove("XDG_DATA_HOME");
        let process = Process::start(kind.name, &mut command, folder)?;
        process.until("an answer from the upstream", || {
            let answer = RawRequest::get("/").from(PROBE).try_ask(address)?;
            (answer.status == 200).then_some(())
        })?;
        Ok(Self {
            address,
            _process: process,
        })
    }
}

/// The files of an example, by their names.
pub(crate) fn example(gateway: &str) -> Vec<(String, String)> {
    let folder = repository().join("examples").join(gateway);
    let files = std::fs::read_dir(folder).unwrap();
    let read = |path: PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        (name, std::fs::read_to_string(path).unwrap())
    };
    files.map(|file| read(file.unwrap().path())).collect()
}

/// An order of this client, with forged values in every field that gateways set. They must be ignored.
fn order(client: u8) -> RawRequest {
    RawRequest::post("/orders?page=1", "two lamps")
        .from(client)
        .with("host", "shop.example")
        .with("x-forwarded-for", "203.0.113.9")
        .with("x-real-ip", "203.0.113.9")
        .with("forwarded", "for=203.0.113.9")
        .with("x-forwarded-method", "GET")
        .with("x-forwarded-uri", "/free")
        .with("x-forwarded-host", "elsewhere.example")
        .with("x-original-uri", "/free")
}
