//! The settings of `tollgate serve`: each is a flag and an environment variable.
//!
//! Must not know: what the settings do.

mod capacity;
mod envoy;
mod fleet;
mod gateway;
mod secrets;
mod state;
mod tls;

pub(crate) use capacity::{CapacityOptions, DrainOptions};
pub(crate) use envoy::EnvoyFileOptions;
pub(crate) use fleet::{FleetOptions, PASSWORD_VARIABLE};
pub(crate) use gateway::{AccessLogTarget, GatewayOptions};
pub(crate) use secrets::{
    FLEET_SECRET, RESP_PASSWORD, SecretFiles, read_at_startup, read_secret, read_variable,
};
pub(crate) use state::StateOptions;
pub(crate) use tls::{TlsListener, TlsOptions};

use std::path::{Path, PathBuf};

use clap::builder::UnknownArgumentValueParser;
use tollgate_core::Nanos;
use tollgate_policy::grammar::parse_duration;
use tollgate_server::listen::ListenAddress;
use tollgate_server::{BodyForm, Dialects, TrustedProxies};
use tollgate_service::MAX_RETRY_JITTER;

use super::logs::LogSettings;
use super::tokens::TokenFiles;

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Listeners")]
pub(crate) struct Options {
    /// Policy file: YAML, TOML or JSON, chosen by the file extension; or a file or directory in the format of envoyproxy/ratelimit.
    /// Default: a demonstration policy. Tollgate reloads the file when it changes and on SIGHUP, and keeps the old policy if the new one
    /// is invalid
    #[arg(
        long,
        help_heading = "Policy",
        value_name = "FILE",
        env = CONFIG
    )]
    config: Option<PathBuf>,
    /// The same as `--config`
    #[arg(value_name = "FILE", hide = true)]
    policy: Option<PathBuf>,
    /// Catches the name that other servers have for `--listen`, to suggest ours.
    #[arg(
        long = "port",
        id = "port",
        hide = true,
        value_parser = UnknownArgumentValueParser::suggest_arg("--listen").and_suggest("an address and a port, for example '--listen 127.0.0.1:8080'")
    )]
    _port: Option<String>,
    /// Address of the HTTP listener: IP and port (port 0 chooses a free port), `unix:` and a path, or `off`
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = "127.0.0.1:8080",
        env = "TOLLGATE_LISTEN"
    )]
    pub(super) listen: ListenAddress,
    /// Address of the gRPC listener, for Envoy's rate limit service
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = "127.0.0.1:8081",
        env = "TOLLGATE_LISTEN_GRPC"
    )]
    pub(super) listen_grpc: ListenAddress,
    /// Address of the listener for Redis clients
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = "127.0.0.1:6380",
        env = "TOLLGATE_LISTEN_RESP"
    )]
    pub(super) listen_resp: ListenAddress,
    /// Address of the admin listener: metrics, health and operator commands. An address that other machines can reach requires tokens
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = "127.0.0.1:8088",
        env = "TOLLGATE_LISTEN_ADMIN"
    )]
    pub(super) listen_admin: ListenAddress,
    #[command(flatten)]
    pub(super) gateway: GatewayOptions,
    #[command(flatten)]
    pub(super) tokens: TokenFiles,
    #[command(flatten)]
    pub(super) logs: LogSettings,
    /// Networks of proxies that are trusted to report clients and requests (X-Forwarded-*, Forwarded), separated by commas. Default:
    /// only loopback
    #[arg(
        long,
        help_heading = "Responses",
        value_name = "NETWORKS",
        env = "TOLLGATE_TRUSTED_PROXIES"
    )]
    pub(super) trusted_proxies: Option<TrustedProxies>,
    /// Listeners whose connections begin with a header of the PROXY protocol (version 1 or 2), separated by commas: api, grpc, resp, admin, gateway. Such
    /// a listener accepts only connections of --trusted-proxies. TLS comes after the header. Default: none
    #[arg(
        long,
        help_heading = "Responses",
        value_name = "LISTENERS",
        value_delimiter = ',',
        env = "TOLLGATE_PROXY_PROTOCOL"
    )]
    pub(super) proxy_protocol: Vec<TlsListener>,
    /// Rate limit header fields in responses, as a comma-separated list of dialects: draft-11, next, draft-07, draft-06, draft-03, envoy,
    /// x-ratelimit, x-ratelimit-epoch, x-ratelimit-epoch-ms, discord, github; or none
    #[arg(
        long,
        alias = "words",
        help_heading = "Responses",
        value_name = "DIALECTS",
        default_value_t = Dialects::default(),
        env = headers_variable()
    )]
    pub(super) headers: Dialects,
    /// Body of responses to /v1/check: full, or minimal for status and header fields only. A client overrides it with `Prefer:
    /// return=minimal` or `return=representation`
    #[arg(
        long,
        help_heading = "Responses",
        value_name = "FORM",
        default_value_t = BodyForm::default(),
        env = "TOLLGATE_BODY"
    )]
    pub(super) body: BodyForm,
    /// Adds a random delay of at most this much to `Retry-After`, so that denied clients do not retry together. For example 5s; at most
    /// 1h. Default: no delay
    #[arg(
        long,
        help_heading = "Responses",
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
    pub(super) state: StateOptions,
    #[command(flatten)]
    pub(super) drain: DrainOptions,
    #[command(flatten)]
    pub(super) envoy: EnvoyFileOptions,
}

/// The variable of `--config`.
const CONFIG: &str = "TOLLGATE_CONFIG";
/// The variable of `--headers`.
pub(super) const HEADERS: &str = "TOLLGATE_HEADERS";
/// Its former name. The next release does not read it.
pub(super) const FORMER_HEADERS: &str = "TOLLGATE_WORDS";

/// The variable to read `--headers` from: the former one only if the new one is not set.
pub(super) fn headers_variable() -> &'static str {
    match (std::env::var_os(HEADERS), std::env::var_os(FORMER_HEADERS)) {
        (None, Some(_)) => FORMER_HEADERS,
        _ => HEADERS,
    }
}

impl Options {
    /// The policy file or directory; without one the demonstration policy is used. The command line wins over the variable.
    pub(super) fn policy_path(&self) -> Option<&Path> {
        self.policy.as_deref().or(self.config.as_deref())
    }

    /// Checks what single settings cannot show.
    ///
    /// # Errors
    /// Two policies are named, or all listeners are off: then the process would run and answer nobody.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        let by_flag = self.config.as_ref().map(|path| path.as_os_str().to_owned());
        if self.policy.is_some() && by_flag != std::env::var_os(CONFIG) {
            return Err("two policies are named, one by --config; name one");
        }
        let is_off = |address: &ListenAddress| *address == ListenAddress::Off;
        if self.gateway.upstream.is_some() && !is_off(&self.gateway.listen_gateway) {
            return Ok(());
        }
        if [&self.listen, &self.listen_grpc, &self.listen_resp]
            .into_iter()
            .any(|address| !is_off(address))
        {
            return Ok(());
        }
        if is_off(&self.listen_admin) {
            return Err(
                "all listeners are off; set an address with --listen, --listen-grpc or --listen-resp",
            );
        }
        tracing::warn!("only the admin listener is on; nobody can ask for decisions");
        Ok(())
    }
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
