//! Settings of capacity and shutdown.
//!
//! Must not know: what the settings do.

use std::time::Duration;

use tollgate_policy::grammar::parse_duration;

use super::parse_at_least_one;

/// The largest drain delay and drain timeout.
const MAX_DRAIN: Duration = Duration::from_secs(3_600);
/// The largest number of worker threads.
const MAX_THREADS: usize = 1_024;

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Capacity")]
pub(crate) struct CapacityOptions {
    /// Open connections per listener. A further connection replaces the oldest one without an answered request; if all have one, it is closed
    /// at once
    #[arg(
        long,
        value_name = "N",
        default_value_t = 10_000,
        value_parser = parse_at_least_one,
        env = "TOLLGATE_MAX_CONNECTIONS"
    )]
    pub(crate) max_connections: usize,
    /// Gateway requests that may wait at the same time for a limit with `wait`. For a request beyond that, `on_store_failure` of its
    /// limit decides
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1_000,
        env = "TOLLGATE_MAX_WAITING"
    )]
    pub(crate) max_waiting: usize,
    /// Keys that the memory store holds at the same time, about 75 bytes each. Memory is used as keys come
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1_000_000,
        env = "TOLLGATE_KEYS"
    )]
    pub(crate) keys: usize,
    /// Worker threads. Default: one per CPU core
    #[arg(
        long,
        value_name = "N",
        value_parser = parse_threads,
        env = "TOLLGATE_WORKER_THREADS"
    )]
    pub(crate) worker_threads: Option<usize>,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Stopping")]
pub(crate) struct DrainOptions {
    /// Time between the stop signal and the end of listening. Meanwhile /readyz returns 503 and connections are still accepted, so that
    /// load balancers can remove this server
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "0s",
        value_parser = parse_drain,
        env = "TOLLGATE_DRAIN_DELAY"
    )]
    pub(crate) drain_delay: Duration,
    /// Time that open connections have to finish after that. A second signal closes them at once
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "10s",
        value_parser = parse_drain,
        env = "TOLLGATE_DRAIN_TIMEOUT"
    )]
    pub(crate) drain_timeout: Duration,
}

fn parse_threads(text: &str) -> Result<usize, String> {
    match parse_at_least_one(text)? {
        count if count > MAX_THREADS => Err(format!("it must be at most {MAX_THREADS}")),
        count => Ok(count),
    }
}

fn parse_drain(text: &str) -> Result<Duration, String> {
    if matches!(text.trim(), "0" | "0s") {
        return Ok(Duration::ZERO);
    }
    let span = parse_duration(text).map_err(|wrong| match wrong.help {
        Some(help) => format!("{}; {help}", wrong.message),
        None => wrong.message.into(),
    })?;
    let span = Duration::from_nanos(span.as_nanos());
    if span > MAX_DRAIN {
        return Err("it must be at most 1h".to_owned());
    }
    Ok(span)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drain_time_is_at_least_zero_and_at_most_an_hour() {
        assert_eq!(parse_drain("0s"), Ok(Duration::ZERO));
        assert_eq!(parse_drain("0"), Ok(Duration::ZERO));
        assert_eq!(parse_drain("1m30s"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_drain("1h"), Ok(MAX_DRAIN));
        assert!(
            parse_drain("61m").is_err() && parse_drain("10").is_err() && parse_drain("").is_err()
        );
    }

    #[test]
    fn the_number_of_threads_is_bounded() {
        assert_eq!(parse_threads("1"), Ok(1));
        assert!(
            parse_threads("0").is_err()
                && parse_threads("1025").is_err()
                && parse_threads("two").is_err()
        );
    }
}
