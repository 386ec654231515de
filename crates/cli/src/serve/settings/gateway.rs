//! Settings of the gateway.
//!
//! Must not know: how requests are forwarded.

use std::path::PathBuf;

use tollgate_policy::grammar::parse_upstream_address;
use tollgate_policy::model::UpstreamAddress;
use tollgate_server::gateway::AccessLogFormat;
use tollgate_server::listen::ListenAddress;

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Gateway")]
pub(crate) struct GatewayOptions {
    /// Server that gets every request which the limits admit: `http://HOST:PORT`, `https://HOST`, `h2c://HOST:PORT` or `unix:/PATH`. The
    /// field `gateway` of a policy has routes and more settings. Without either there is no gateway
    #[arg(
        long,
        value_name = "URL",
        value_parser = parse_upstream,
        env = "TOLLGATE_UPSTREAM"
    )]
    pub(crate) upstream: Option<UpstreamAddress>,
    /// Address of the gateway listener
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = "127.0.0.1:8000",
        env = "TOLLGATE_LISTEN_GATEWAY"
    )]
    pub(crate) listen_gateway: ListenAddress,
    /// Where the gateway logs each request: a file, `stdout`, or `off`. SIGHUP opens the file again, after it was rotated. If the lines are
    /// not written fast enough, lines are dropped and counted
    #[arg(
        long,
        value_name = "FILE",
        default_value = "off",
        value_parser = parse_access_log,
        env = "TOLLGATE_ACCESS_LOG"
    )]
    pub(crate) access_log: AccessLogTarget,
    /// Format of that log: text, combined, json, or a string with variables of nginx such as `$remote_addr "$request" $status
    /// $tollgate_decision`. Credentials in header fields are redacted
    #[arg(
        long,
        value_name = "FORMAT",
        default_value = "text",
        value_parser = str::parse::<AccessLogFormat>,
        env = "TOLLGATE_ACCESS_LOG_FORMAT"
    )]
    pub(crate) access_log_format: AccessLogFormat,
}

/// Where requests are logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AccessLogTarget {
    Off,
    Stdout,
    File(PathBuf),
}

fn parse_access_log(text: &str) -> Result<AccessLogTarget, String> {
    match text {
        "" => Err("it must be a file, stdout or off".to_owned()),
        "off" => Ok(AccessLogTarget::Off),
        "stdout" => Ok(AccessLogTarget::Stdout),
        path => Ok(AccessLogTarget::File(path.into())),
    }
}

fn parse_upstream(text: &str) -> Result<UpstreamAddress, String> {
    parse_upstream_address(text).map_err(|wrong| match wrong.help {
        Some(help) => format!("{}; {help}", wrong.message),
        None => wrong.message.into(),
    })
}
