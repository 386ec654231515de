//! envoyproxy/ratelimit, which answers Envoy's call, with its counters in Redis.
//!
//! No package registry has its program: a caller that wants it in a run builds it and names it. Its limits are fixed windows. Must
//! not know: how anything is measured.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;

use prost::Message as _;

use super::ours::envoy_calls;
use super::{BURST, Contender, Store};
use crate::floors::rls::RateLimitResponse;
use crate::load;
use crate::process::{Server, free_addresses};

const NAME: &str = "envoyproxy/ratelimit";

pub(crate) struct EnvoyproxyRatelimit {
    server: Rc<Server>,
    grpc: SocketAddr,
    store: Rc<Server>,
    folder: PathBuf,
}

impl EnvoyproxyRatelimit {
    /// Every decision calls Redis: by default there is no local cache.
    pub(crate) fn start(program: &Path, store: &Store) -> Result<Self, String> {
        let [grpc, http, debug] = free_addresses()?;
        let name = format!("ratelimit-bench-{}-{}", std::process::id(), grpc.port());
        let folder = std::env::temp_dir().join(name);
        let root = write_config(&folder)?;
        let mut command = Command::new(program);
        // All settings are environment variables, some with names as common as `PORT`, so it gets only ours. The others keep their
        // defaults. It runs on the core of servers, so the Go runtime uses one thread for Go code.
        command
            .env_clear()
            .env("RUNTIME_ROOT", root)
            .env("RUNTIME_SUBDIRECTORY", "ratelimit")
            .env("REDIS_SOCKET_TYPE", "tcp")
            .env("REDIS_URL", store.address.to_string())
            .env("USE_STATSD", "false")
            .env("LOG_LEVEL", "warn");
        for (host, port, address) in [
            ("GRPC_HOST", "GRPC_PORT", grpc),
            ("HOST", "PORT", http),
            ("DEBUG_HOST", "DEBUG_PORT", debug),
        ] {
            command
                .env(host, address.ip().to_string())
                .env(port, address.port().to_string());
        }
        let server = Server::start(&mut command, &[grpc, http, debug])?;
        let started = Self {
            server: Rc::new(server),
            grpc,
            store: Rc::clone(&store.server),
            folder,
        };
        started.ensure_limit_applies()?;
        Ok(started)
    }

    pub(crate) fn grpc(&self) -> Contender {
        let contender = Contender::new(NAME, &self.server, self.grpc, envoy_calls());
        contender.calling(Some(&self.store))
    }

    /// A request that matches no limit is admitted without a call of Redis, so an admission alone does not show that it is counted.
    fn ensure_limit_applies(&self) -> Result<(), String> {
        let answer = load::sample(self.grpc, &mut envoy_calls()())?;
        let message = load::grpc::message(&answer).unwrap_or_default();
        let limit = applied_limit(&message);
        if limit == Some(BURST) {
            return Ok(());
        }
        Err(format!(
            "{NAME} applies the limit {limit:?} instead of {BURST}"
        ))
    }
}

/// Writes one limit that each value of the descriptor has, and returns the root of its folders of configuration.
fn write_config(folder: &Path) -> Result<PathBuf, String> {
    let root = folder.join("current");
    let config = root.join("ratelimit/config");
    let text = format!(
        "domain: bench\ndescriptors:\n  - key: user\n    rate_limit:\n      unit: hour\n      requests_per_unit: {BURST}\n"
    );
    std::fs::create_dir_all(&config)
        .and_then(|()| std::fs::write(config.join("bench.yaml"), text))
        .map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(root)
}

/// The limit that an answer reports for its descriptor.
fn applied_limit(message: &[u8]) -> Option<u32> {
    let response = RateLimitResponse::decode(message).ok()?;
    let status = response.statuses.first()?;
    Some(status.current_limit.as_ref()?.requests_per_unit)
}

impl Drop for EnvoyproxyRatelimit {
    fn drop(&mut self) {
        if std::fs::remove_dir_all(&self.folder).is_err() {
            eprintln!("{} could not be removed", self.folder.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::floors::rls::{DescriptorStatus, RateLimit};

    #[test]
    fn an_admission_without_a_limit_reports_none() {
        let mut response = RateLimitResponse {
            overall_code: 1,
            statuses: vec![DescriptorStatus {
                code: 1,
                ..DescriptorStatus::default()
            }],
            response_headers_to_add: Vec::new(),
        };
        assert_eq!(applied_limit(&response.encode_to_vec()), None);
        response.statuses[0].current_limit = Some(RateLimit {
            requests_per_unit: BURST,
            unit: 3,
            name: String::new(),
        });
        assert_eq!(applied_limit(&response.encode_to_vec()), Some(BURST));
        assert_eq!(applied_limit(b"no message"), None);
    }
}
