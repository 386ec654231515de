//! `tollgate serve`, with a policy of one limit.
//!
//! Must not know: how anything is measured.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;

use prost::Message as _;

use super::{BURST, COUNT, Contender, PERIOD, Store};
use crate::floors::rls::{Descriptor, Entry, RateLimitRequest};
use crate::load::grpc::Calls;
use crate::load::http::Requests;
use crate::load::resp::{Admits, Commands, key};
use crate::process::{Server, free_addresses};

const NAME: &str = "tollgate";

pub(crate) struct Ours {
    pub(crate) server: Rc<Server>,
    pub(crate) resp: SocketAddr,
    pub(crate) http: SocketAddr,
    pub(crate) grpc: SocketAddr,
    folder: PathBuf,
}

impl Ours {
    /// Starts it with room for so many keys, and with so many workers if that is said.
    pub(crate) fn start(program: &Path, keys: u32, workers: Option<usize>) -> Result<Self, String> {
        Self::start_with(program, keys, |command, _folder| {
            if let Some(workers) = workers {
                command.env("TOKIO_WORKER_THREADS", workers.to_string());
            }
            Ok(())
        })
    }

    /// Starts it as one of a fleet that shares this store.
    pub(crate) fn start_on(program: &Path, keys: u32, store: &Store) -> Result<Self, String> {
        Self::start_with(program, keys, |command, folder| {
            let secret = folder.join("secret");
            std::fs::write(&secret, "00112233445566778899aabbccddeeff\n")?;
            command
                .args(["--redis", &format!("redis://{}", store.address)])
                // A machine that is busy elsewhere does not turn a measurement into an outage.
                .args(["--redis-deadline", "5s"])
                .arg("--fleet-secret-file")
                .arg(secret);
            Ok(())
        })
    }

    fn start_with(
        program: &Path,
        keys: u32,
        further: impl Fn(&mut Command, &Path) -> std::io::Result<()>,
    ) -> Result<Self, String> {
        let [resp, http, grpc] = free_addresses()?;
        let name = format!("tollgate-bench-{}-{}", std::process::id(), http.port());
        let folder = std::env::temp_dir().join(name);
        let policy = folder.join("policy.yaml");
        std::fs::create_dir_all(&folder)
            .and_then(|()| std::fs::write(&policy, policy_text()))
            .map_err(|error| format!("{}: {error}", folder.display()))?;
        let mut command = Command::new(program);
        command
            .arg("serve")
            .arg("--config")
            .arg(&policy)
            .args(["--listen", &http.to_string()])
            .args(["--listen-resp", &resp.to_string()])
            .args(["--listen-grpc", &grpc.to_string()])
            .args(["--listen-admin", "off"])
            .args(["--max-connections", "15000"])
            .args(["--keys", &keys.to_string()]);
        further(&mut command, &folder).map_err(|error| error.to_string())?;
        let server = Server::start(&mut command, &[resp, http, grpc])?;
        Ok(Self {
            server: Rc::new(server),
            resp,
            http,
            grpc,
            folder,
        })
    }

    pub(crate) fn resp(&self) -> Contender {
        Contender::new(NAME, &self.server, self.resp, Self::commands)
    }

    pub(crate) fn http(&self) -> Contender {
        let talk = || {
            let body = r#"{"attributes":{"header.x-api-key":"KEY"}}"#;
            Requests::post("/v1/check", body)
        };
        Contender::new(NAME, &self.server, self.http, talk)
    }

    /// Envoy's question about one descriptor.
    pub(crate) fn grpc(&self) -> Contender {
        let entry = Entry {
            key: "user".to_owned(),
            value: key(0),
        };
        let request = RateLimitRequest {
            domain: "bench".to_owned(),
            descriptors: vec![Descriptor {
                entries: vec![entry],
            }],
            hits_addend: 0,
        };
        let message = request.encode_to_vec();
        let method = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
        let talk = move || Calls::new(method, &message);
        Contender::new(NAME, &self.server, self.grpc, talk)
    }

    pub(crate) fn commands() -> Commands {
        let [burst, count, period] = [BURST, COUNT, PERIOD].map(|number| number.to_string());
        let words = ["CL.THROTTLE", "KEY", &burst, &count, &period, "1"];
        Commands::new(&words, Admits::Zero)
    }
}

impl Drop for Ours {
    fn drop(&mut self) {
        if std::fs::remove_dir_all(&self.folder).is_err() {
            eprintln!("{} could not be removed", self.folder.display());
        }
    }
}

/// One limit for requests that show a key, and one for Envoy's descriptors.
fn policy_text() -> String {
    let limit = |name: &str, key: &str| {
        format!(
            "  - name: {name}\n    key: {key}\n    missing: skip\n    rate: {COUNT}/{PERIOD}s\n    burst: {BURST}\n"
        )
    };
    format!(
        "limits:\n{}{}",
        limit("per-key", "header.x-api-key"),
        limit("per-user", "descriptor.user")
    )
}
