//! Everything that can be set about a server: flags, and environment variables of the same meaning.
//!
//! Must not know: what is done with it.

mod capacity;
mod fleet;
mod secrets;
mod tls;

pub(crate) use capacity::{CapacityOptions, DrainOptions};
pub(crate) use fleet::FleetOptions;
pub(crate) use secrets::{SecretFiles, read_secret, read_variable};
pub(crate) use tls::{TlsListener, TlsOptions};

use std::path::PathBuf;

use super::logs::LogSettings;
use super::tokens::TokenFiles;
use tollgate_core::Nanos;
use tollgate_policy::grammar::parse_duration;
use tollgate_server::listen::ListenAddress;
use tollgate_server::{Dialects, TrustedProxies};
use tollgate_service::MAX_RETRY_JITTER;

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Listeners")]
pub(crate) struct Options {
    /// The policy file: YAML, TOML or JSON by its ending, or a file or directory of files of envoyproxy/ratelimit; without one a demonstration policy. Changes are put in force at once if they are right; SIGHUP reads it again
    #[arg(
        long,
        help_heading = "Policy",
        value_name = "FILE",
        env = "TOLLGATE_CONFIG"
    )]
    pub(super) config: Option<PathBuf>,
    /// Where to listen for HTTP: an address and port (port 0 takes a free one), `unix:` and a path, or `off`
    #[arg(
        long,
        value_name = "PLACE",
        default_value = "127.0.0.1:8080",
        env = "TOLLGATE_LISTEN"
    )]
    pub(super) listen: ListenAddress,
    /// Where to listen for gRPC: Envoy's rate limit service
    #[arg(
        long,
        value_name = "PLACE",
        default_value = "127.0.0.1:8081",
        env = "TOLLGATE_LISTEN_GRPC"
    )]
    pub(super) listen_grpc: ListenAddress,
    /// Where to listen for Redis clients
    #[arg(
        long,
        value_name = "PLACE",
        default_value = "127.0.0.1:6380",
        env = "TOLLGATE_LISTEN_RESP"
    )]
    pub(super) listen_resp: ListenAddress,
    /// Where to listen for operators and Prometheus; a place that other machines can reach takes tokens
    #[arg(
        long,
        value_name = "PLACE",
        default_value = "127.0.0.1:8088",
        env = "TOLLGATE_LISTEN_ADMIN"
    )]
    pub(super) listen_admin: ListenAddress,
    #[command(flatten)]
    pub(super) tokens: TokenFiles,
    #[command(flatten)]
    pub(super) logs: LogSettings,
    /// Networks of gateways whose word about clients is taken, separated by commas; without it only this machine
    #[arg(
        long,
        help_heading = "Answers",
        value_name = "NETWORKS",
        env = "TOLLGATE_TRUSTED_PROXIES"
    )]
    pub(super) trusted_proxies: Option<TrustedProxies>,
    /// The dialects in which clients are told about their limits, separated by commas: draft-11, next, draft-07, draft-06, draft-03, envoy, x-ratelimit, x-ratelimit-epoch, x-ratelimit-epoch-ms, discord, github; or none
    #[arg(
        long,
        help_heading = "Answers",
        value_name = "DIALECTS",
        default_value_t = Dialects::default(),
        env = "TOLLGATE_WORDS"
    )]
    pub(super) words: Dialects,
    /// The most that those who are denied are told to wait longer than needed, each another time, so that they do not come back together: 5s, at most 1h; without it nobody waits longer
    #[arg(
        long,
        help_heading = "Answers",
        value_name = "DURATION",
        value_parser = parse_jitter,
        env = "TOLLGATE_RETRY_JITTER"
    )]
    pub(super) retry_jitter: Option<Nanos>,
    #[command(flatten)]
    pub(super) capacity: CapacityOptions,
    #[command(flatten)]
    pub(super) fleet: FleetOptions,
    #[command(flatten)]
    pub(super) tls: TlsOptions,
    #[command(flatten)]
    pub(super) secrets: SecretFiles,
    #[command(flatten)]
    pub(super) drain: DrainOptions,
}

fn parse_at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("it must be at least 1".to_owned()),
        Ok(count) => Ok(count),
        Err(error) => Err(format!("{error}")),
    }
}

fn parse_jitter(text: &str) -> Result<Nanos, String> {
    let span = parse_duration(text).map_err(|wrong| match wrong.help {
        Some(help) => format!("{}; {help}", wrong.message),
        None => wrong.message.into(),
    })?;
    if span > MAX_RETRY_JITTER {
        return Err("it must be at most 1h".to_owned());
    }
    Ok(span)
}
