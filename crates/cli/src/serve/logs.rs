//! The log: its format and its level.
//!
//! Below `warn` only our own crates are logged, because libraries may log data of clients. Must not know: what is logged.

use std::io;

use tollgate_service::DenialLogMode;
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// The prefix of the names of our crates.
const OURS: &str = "tollgate";

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Logs")]
pub(crate) struct LogSettings {
    /// Format of the log
    #[arg(
        long,
        value_enum,
        value_name = "FORMAT",
        default_value_t,
        env = "TOLLGATE_LOG_FORMAT"
    )]
    log_format: LogFormat,
    /// Lowest level that is logged: off, error, warn, info, debug or trace
    #[arg(
        long,
        value_name = "LEVEL",
        default_value = "info",
        value_parser = level,
        env = "TOLLGATE_LOG"
    )]
    log_level: LevelFilter,
    /// Which denials are logged: off, sampled (one per second) or all (up to 1,000 per second). Keys are logged as digests
    #[arg(
        long,
        value_name = "WHICH",
        default_value_t,
        env = "TOLLGATE_LOG_DENIALS"
    )]
    pub(super) log_denials: DenialLogMode,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum LogFormat {
    #[default]
    Text,
    Json,
}

fn level(text: &str) -> Result<LevelFilter, String> {
    match text {
        "off" => Ok(LevelFilter::OFF),
        "error" => Ok(LevelFilter::ERROR),
        "warn" => Ok(LevelFilter::WARN),
        "info" => Ok(LevelFilter::INFO),
        "debug" => Ok(LevelFilter::DEBUG),
        "trace" => Ok(LevelFilter::TRACE),
        _ => Err("it must be off, error, warn, info, debug or trace".to_owned()),
    }
}

/// Starts the log. It goes to stderr.
pub(super) fn start(settings: &LogSettings) {
    let level = settings.log_level;
    let filter = Targets::new()
        .with_target(OURS, level)
        .with_default(level.min(LevelFilter::WARN));
    let layer = tracing_subscriber::fmt::layer()
        .with_writer(io::stderr)
        .with_target(false);
    let layer = match settings.log_format {
        LogFormat::Text => layer.boxed(),
        LogFormat::Json => layer.json().flatten_event(true).boxed(),
    };
    tracing_subscriber::registry()
        .with(layer.with_filter(filter))
        .init();
}
