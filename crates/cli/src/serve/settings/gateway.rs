//! Settings of the gateway.
//!
//! Must not know: how requests are forwarded.

use tollgate_policy::grammar::parse_upstream_address;
use tollgate_policy::model::UpstreamAddress;
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
}

fn parse_upstream(text: &str) -> Result<UpstreamAddress, String> {
    parse_upstream_address(text).map_err(|wrong| match wrong.help {
        Some(help) => format!("{}; {help}", wrong.message),
        None => wrong.message.into(),
    })
}
