//! `tollgate serve`, with a policy of one limit or of several that all apply.
//!
//! Must not know: how anything is measured.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;

use prost::Message as _;

use super::{BURST, COUNT, Contender, PERIOD, Store};
use crate::cores::Placement;
use crate::floors::rls::{Descriptor, Entry, RateLimitRequest};
use crate::load::Talk;
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
    store: Option<Rc<Server>>,
    is_on_load_core: bool,
    folder: PathBuf,
}

/// How it is started.
#[derive(Clone, Copy)]
pub(crate) struct Setup<'a> {
    pub(crate) program: &'a Path,
    /// It has room for so many.
    pub(crate) keys: u32,
    /// So many limits apply to every request.
    pub(crate) limits: usize,
    /// Its worker threads. `None` is one, on the core of servers; otherwise all cores are used.
    pub(crate) workers: Option<usize>,
    /// The store that it shares with a fleet, and how.
    pub(crate) shared: Option<(&'a Store, Consistency)>,
}

/// How a fleet counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Consistency {
    Exact,
    Leased,
}

impl<'a> Setup<'a> {
    /// One limit, one worker, no fleet.
    pub(crate) fn new(program: &'a Path, keys: u32) -> Self {
        Self {
            program,
            keys,
            limits: 1,
            workers: None,
            shared: None,
        }
    }
}

impl Ours {
    pub(crate) fn start(setup: Setup<'_>) -> Result<Self, String> {
        let [resp, http, grpc] = free_addresses()?;
        let name = format!("tollgate-bench-{}-{}", std::process::id(), http.port());
        let folder = std::env::temp_dir().join(name);
        let policy = folder.join("policy.yaml");
        std::fs::create_dir_all(&folder)
            .and_then(|()| std::fs::write(&policy, policy_text(&setup)))
            .map_err(|error| format!("{}: {error}", folder.display()))?;
        let mut command = Command::new(setup.program);
        command
            .arg("serve")
            .arg("--config")
            .arg(&policy)
            .args(["--listen", &http.to_string()])
            .args(["--listen-resp", &resp.to_string()])
            .args(["--listen-grpc", &grpc.to_string()])
            .args(["--listen-admin", "off"])
            .args(["--max-connections", "15000"])
            .args(["--keys", &setup.keys.to_string()]);
        if let Some((store, _)) = setup.shared {
            join(&mut command, &folder, store).map_err(|error| error.to_string())?;
        }
        let mut placement = Placement::ServerCore;
        if let Some(workers) = setup.workers {
            command.env("TOKIO_WORKER_THREADS", workers.to_string());
            placement = Placement::AllCores;
        }
        let server = Server::start_at(placement, &mut command, &[resp, http, grpc])?;
        Ok(Self {
            server: Rc::new(server),
            resp,
            http,
            grpc,
            store: setup.shared.map(|(store, _)| Rc::clone(&store.server)),
            is_on_load_core: placement == Placement::AllCores,
            folder,
        })
    }

    pub(crate) fn resp(&self) -> Contender {
        self.contender(self.resp, Self::commands)
    }

    /// The same protocol with our own command, which matches the policy.
    pub(crate) fn resp_check(&self) -> Contender {
        let talk = || Commands::new(&["TG.CHECK", "header.x-api-key", "KEY"], Admits::One);
        let contender = self.contender(self.resp, talk);
        contender.called("tollgate, TG.CHECK")
    }

    pub(crate) fn http(&self) -> Contender {
        let talk = || {
            let body = r#"{"attributes":{"header.x-api-key":"KEY"}}"#;
            Requests::post("/v1/check", body)
        };
        self.contender(self.http, talk)
    }

    /// Envoy's question about one descriptor.
    pub(crate) fn grpc(&self) -> Contender {
        self.contender(self.grpc, envoy_calls())
    }

    fn contender<T: Talk + 'static>(
        &self,
        address: SocketAddr,
        talk: impl Fn() -> T + 'static,
    ) -> Contender {
        let mut contender = Contender::new(NAME, &self.server, address, talk).ours();
        contender.is_on_load_core = self.is_on_load_core;
        contender.calling(self.store.as_ref())
    }

    pub(crate) fn commands() -> Commands {
        let [burst, count, period] = [BURST, COUNT, PERIOD].map(|number| number.to_string());
        let words = ["CL.THROTTLE", "KEY", &burst, &count, &period, "1"];
        Commands::new(&words, Admits::Zero)
    }
}

/// Envoy's question about one descriptor, to any server that answers it.
pub(super) fn envoy_calls() -> impl Fn() -> Calls {
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
    move || Calls::new(method, &message)
}

impl Drop for Ours {
    fn drop(&mut self) {
        if std::fs::remove_dir_all(&self.folder).is_err() {
            eprintln!("{} could not be removed", self.folder.display());
        }
    }
}

/// Makes it one of a fleet that shares this store.
fn join(command: &mut Command, folder: &Path, store: &Store) -> std::io::Result<()> {
    let secret = folder.join("secret");
    std::fs::write(&secret, "00112233445566778899aabbccddeeff\n")?;
    command
        .args(["--redis", &format!("redis://{}", store.address)])
        // A machine that is busy elsewhere does not turn a measurement into an outage.
        .args(["--redis-deadline", "5s"])
        .arg("--fleet-secret-file")
        .arg(secret);
    Ok(())
}

/// Limits for requests that show a key, and as many for Envoy's descriptors.
fn policy_text(setup: &Setup<'_>) -> String {
    let consistency = match setup.shared {
        Some((_, Consistency::Leased)) => "    consistency: leased\n",
        _ => "",
    };
    let mut text = "limits:\n".to_owned();
    for (name, key) in [
        ("per-key", "header.x-api-key"),
        ("per-user", "descriptor.user"),
    ] {
        for number in 1..=setup.limits {
            text += &format!(
                "  - name: {name}-{number}\n    key: {key}\n    missing: skip\n    rate: {COUNT}/{PERIOD}s\n    burst: {BURST}\n{consistency}"
            );
        }
    }
    text
}
