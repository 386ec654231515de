//! The log: its format and its level.
//!
//! Below `warn` only our own crates are logged, because libraries may log data of clients. Must not know: what is logged.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io;
use std::panic::{self, PanicHookInfo};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread;

use tollgate_service::DenialLogMode;
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use super::log_writer::{FlushGuard, LogWriter};
use crate::output::log_output;

const LINES_DROPPED: &str = "log lines dropped because stderr was not read";
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

/// Starts the log. It goes to stderr, and neither a line nor a panic message waits for a reader. Returns the count of
/// dropped lines, and the guard that writes the last lines.
///
/// # Errors
/// The thread that writes cannot be started.
pub(super) fn start(settings: &LogSettings) -> io::Result<(Arc<AtomicU64>, FlushGuard)> {
    let level = settings.log_level;
    let filter = Targets::new()
        .with_target(OURS, level)
        .with_default(level.min(LevelFilter::WARN));
    let (writer, guard) = LogWriter::start("log", LINES_DROPPED, log_output())?;
    let dropped = Arc::clone(writer.dropped_lines());
    let layer = tracing_subscriber::fmt::layer()
        .with_writer(writer)
        // Logs are read by programs. A dependency that wants colours for itself must not bring them here.
        .with_ansi(false)
        // By itself it would write what goes wrong in it straight to stderr.
        .log_internal_errors(false)
        .with_target(false);
    let layer = match settings.log_format {
        LogFormat::Text => layer.boxed(),
        LogFormat::Json => layer.json().flatten_event(true).boxed(),
    };
    tracing_subscriber::registry()
        .with(layer.with_filter(filter))
        .init();
    panic::set_hook(Box::new(log_panic));
    Ok((dropped, guard))
}

/// Takes the place of the standard hook, which writes to stderr and waits for its reader.
fn log_panic(panic: &PanicHookInfo<'_>) {
    let thread = thread::current();
    let thread = thread.name().unwrap_or("unnamed");
    let cause = panic.payload_as_str().unwrap_or("no message");
    let location = panic.location().map(ToString::to_string);
    let location = location.as_deref().unwrap_or("unknown");
    let backtrace = Backtrace::capture();
    match backtrace.status() {
        BacktraceStatus::Captured => {
            tracing::error!(thread, location, cause, %backtrace, "panicked");
        }
        _ => tracing::error!(thread, location, cause, "panicked"),
    }
}
