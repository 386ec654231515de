//! Settings of the state file.
//!
//! Must not know: what the state contains.

use std::path::PathBuf;
use std::time::Duration;

use tollgate_policy::grammar::parse_duration;

/// Saving more often would do little else.
const MIN_INTERVAL: Duration = Duration::from_millis(100);
const MAX_INTERVAL: Duration = Duration::from_secs(3_600);

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "State")]
pub(crate) struct StateOptions {
    /// File that keeps counters, leases, tickets, the process' secret and operator settings over restarts. Only its owner can read it.
    /// Not with --redis, where the fleet keeps them. Default: a restart begins without state
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with = "redis",
        env = "TOLLGATE_STATE"
    )]
    pub(crate) state: Option<PathBuf>,
    /// How often the state file is saved while the server runs: what a crash may lose. 100ms to 1h
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "10s",
        value_parser = parse_interval,
        env = "TOLLGATE_STATE_INTERVAL"
    )]
    pub(crate) state_interval: Duration,
    /// Refuse to start if the state file is damaged. Default: start without state and keep the damaged file aside
    #[arg(long, requires = "state", env = "TOLLGATE_STATE_REQUIRED")]
    pub(crate) state_required: bool,
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    let span = parse_duration(text).map_err(|wrong| match wrong.help {
        Some(help) => format!("{}; {help}", wrong.message),
        None => wrong.message.into(),
    })?;
    let span = Duration::from_nanos(span.as_nanos());
    if !(MIN_INTERVAL..=MAX_INTERVAL).contains(&span) {
        return Err("it must be 100ms to 1h".to_owned());
    }
    Ok(span)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_has_bounds() {
        assert_eq!(parse_interval("10s"), Ok(Duration::from_secs(10)));
        assert!(parse_interval("99ms").is_err() && parse_interval("61m").is_err());
        assert!(parse_interval("10").is_err());
    }
}
