//! The command line of `tollgate call`.
//!
//! Must not know: how requests are sent.

use std::time::Duration;

use tollgate_client::{Nanos, PacerSettings};
use tollgate_policy::grammar::parse_duration;

use crate::http_client::{RequestTemplate, Target, TlsOptions};
use crate::output::CommandError;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The URL to call, with http:// or https://
    #[arg(value_name = "URL")]
    pub(super) url: String,
    /// The method; POST if there is a body, otherwise GET
    #[arg(short = 'X', long, value_name = "METHOD")]
    method: Option<String>,
    /// A header, for example 'x-api-key: k'; may be repeated
    #[arg(short = 'H', long = "header", value_name = "HEADER")]
    headers: Vec<String>,
    /// The body
    #[arg(short = 'd', long, value_name = "TEXT")]
    data: Option<String>,
    /// If the server refuses because of a limit, wait as long as it asks for and try again, at most this many times
    #[arg(
        long,
        value_name = "COUNT",
        default_value_t = 0,
        conflicts_with = "until_ok"
    )]
    retry: u32,
    /// Try again until the server does not refuse any more and can be reached, within --max-time
    #[arg(long)]
    pub(super) until_ok: bool,
    /// Also try methods again that may take effect twice, such as POST
    #[arg(long)]
    pub(super) retry_all_methods: bool,
    /// The longest time for everything. If a wait would end later, the command fails at once
    #[arg(short = 'm', long, value_name = "DURATION", default_value = "5m", value_parser = parse_max_time)]
    pub(super) max_time: Duration,
    /// Print the status and the header fields of the response before its body
    #[arg(short, long)]
    pub(super) include: bool,
    /// Use HTTP/2, without TLS by prior knowledge
    #[arg(long)]
    pub(super) http2: bool,
    #[command(flatten)]
    pub(super) tls: TlsOptions,
    /// Print only the response
    #[arg(short, long)]
    pub(super) quiet: bool,
}

impl Options {
    pub(super) fn request_template(
        &self,
        target: &Target,
    ) -> Result<RequestTemplate, CommandError> {
        let default = match self.data {
            Some(_) => "POST",
            None => "GET",
        };
        let method = self.method.as_deref().unwrap_or(default);
        let body = self.data.clone().unwrap_or_default();
        RequestTemplate::new(target, method, &self.headers, body)
    }

    /// The settings of the pacer. A program that sends one request needs no budget for retries.
    pub(super) fn pacer_settings(&self) -> PacerSettings {
        let attempts = match self.until_ok {
            true => u32::MAX,
            false => self.retry.saturating_add(1),
        };
        PacerSettings::default()
            .with_max_attempts(attempts)
            .with_max_wait(Nanos::from(self.max_time))
            .without_retry_budget()
    }
}

fn parse_max_time(text: &str) -> Result<Duration, String> {
    let time = parse_duration(text).map_err(|error| error.message.to_string())?;
    Ok(time.into())
}
