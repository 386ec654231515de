//! limitador-server, which answers Envoy's call and checks over HTTP, with its counters in memory or in Redis.
//!
//! It is not on crates.io: a caller that wants it in a run builds it and names its program. Its limits are fixed windows. Must not
//! know: how anything is measured.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;

use super::ours::envoy_calls;
use super::{BURST, Contender, PERIOD, Store};
use crate::load::http::Requests;
use crate::options::Options;
use crate::process::{Server, free_addresses};

const NAME: &str = "limitador-server";

pub(crate) struct Limitador {
    server: Rc<Server>,
    grpc: SocketAddr,
    http: SocketAddr,
    store: Option<Rc<Server>>,
    limits: PathBuf,
}

/// Where its counters are.
#[derive(Clone, Copy)]
pub(crate) enum Counters<'a> {
    Memory {
        keys: u32,
    },
    Redis(&'a Store),
    /// Counted in memory and written to Redis later, so that several nodes may admit more than the limit.
    RedisCached(&'a Store),
}

impl Limitador {
    /// With its counters in memory, if its program is named.
    pub(crate) fn in_memory(options: &Options) -> Result<Option<Self>, String> {
        let counters = Counters::Memory { keys: options.keys };
        let program = options.limitador.as_ref();
        program
            .map(|program| Self::start(program, counters))
            .transpose()
    }

    pub(crate) fn start(program: &Path, counters: Counters<'_>) -> Result<Self, String> {
        let [grpc, http] = free_addresses()?;
        let name = format!("limitador-{}-{}.yaml", std::process::id(), grpc.port());
        let limits = std::env::temp_dir().join(name);
        let text = format!(
            "- namespace: bench\n  max_value: {BURST}\n  seconds: {PERIOD}\n  conditions: []\n  variables: [\"descriptors[0]['user']\"]\n"
        );
        std::fs::write(&limits, text).map_err(|error| format!("{}: {error}", limits.display()))?;
        let mut command = Command::new(program);
        for (ip, port, address) in [
            ("--rls-ip", "--rls-port", grpc),
            ("--http-ip", "--http-port", http),
        ] {
            command.args([ip, &address.ip().to_string()]);
            command.args([port, &address.port().to_string()]);
        }
        // One worker, on the core of servers, as ours.
        command.env("TOKIO_WORKER_THREADS", "1").arg(&limits);
        let url = |store: &Store| format!("redis://{}", store.address);
        let store = match counters {
            Counters::Memory { keys } => {
                command.args(["memory", "--cache", &keys.to_string()]);
                None
            }
            Counters::Redis(store) => {
                command.args(["redis", &url(store)]);
                Some(store)
            }
            Counters::RedisCached(store) => {
                command.args(["redis_cached", &url(store)]);
                Some(store)
            }
        };
        let server = Server::start(&mut command, &[grpc, http])?;
        Ok(Self {
            server: Rc::new(server),
            grpc,
            http,
            store: store.map(|store| Rc::clone(&store.server)),
            limits,
        })
    }

    pub(crate) fn grpc(&self) -> Contender {
        Contender::new(NAME, &self.server, self.grpc, envoy_calls()).calling(self.store.as_ref())
    }

    pub(crate) fn http(&self) -> Contender {
        let talk = || {
            let body = r#"{"namespace":"bench","values":{"user":"KEY"},"delta":1}"#;
            Requests::post("/check_and_report", body)
        };
        Contender::new(NAME, &self.server, self.http, talk).calling(self.store.as_ref())
    }
}

impl Drop for Limitador {
    fn drop(&mut self) {
        if std::fs::remove_file(&self.limits).is_err() {
            eprintln!("{} could not be removed", self.limits.display());
        }
    }
}
