//! Gateways that ask about the requests they hold, set up exactly as `examples/` says, with this test's ports in it.
//!
//! Each is told the same story in `story.rs`; what is its own is in its file. Must not know: how requests are decided.

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

/// Another process may take the free port between finding it and using it.
const ATTEMPTS: u32 = 5;

/// What the examples say, and what a test puts in its place.
pub(crate) const LISTEN_PORT: &str = ":8000";
pub(crate) const TOLLGATE: &str = "127.0.0.1:8080";
pub(crate) const APP: &str = "127.0.0.1:3000";

/// Clients of the story, by the last number of their address. Gateways themselves are 127.0.0.1.
const ALICE: u8 = 2;
const BOB: u8 = 3;
const CROWD: u8 = 4;
/// Who looks whether a gateway is up.
const PROBE: u8 = 99;

/// A limit that a request falls under only if every field that the gateway says of it is the client's real one.
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

/// Which gateway, and how it is started.
struct GatewayKind {
    /// Its folder in `examples`.
    name: &'static str,
    program: fn() -> PathBuf,
    arguments: &'static [&'static str],
}

/// A running gateway.
struct Gateway {
    address: SocketAddr,
    /// Held until the end, which it brings about.
    _process: Process,
}

/// Everything that a request passes.
struct GatewayFixture {
    gateway: Gateway,
    server: Server,
    upstream: Upstream,
}

impl GatewayFixture {
    /// The gateway as its example has it.
    fn new(kind: &GatewayKind) -> Self {
        Self::with(kind, |text| text)
    }

    /// The gateway with its files changed.
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

    /// How many requests came through since `before` was told.
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
            // Where some of them keep what they would like to find again.
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

/// An order, as this client sends it. It lies in every field in which gateways say what they hold: nobody may believe it.
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
