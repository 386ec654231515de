//! What can be set about how much a server takes on, and how it stops.
//!
//! Must not know: what is done with it.

use std::time::Duration;

use tollgate_policy::grammar::parse_duration;

use super::parse_at_least_one;

/// Nobody waits longer than this for a server to stop.
const MAX_DRAIN: Duration = Duration::from_secs(3_600);
/// More threads than any machine has cores.
const MAX_THREADS: usize = 1_024;

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Capacity")]
pub(crate) struct CapacityOptions {
    /// Connections that each listener has open at the same time; further ones are closed at once
    #[arg(
        long,
        value_name = "N",
        default_value_t = 10_000,
        value_parser = parse_at_least_one,
        env = "TOLLGATE_MAX_CONNECTIONS"
    )]
    pub(crate) max_connections: usize,
    /// Requests of gateways that are held back at the same time until they may go on; of further ones that would have to wait, `on_store_failure` of their limits decides
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1_000,
        env = "TOLLGATE_MAX_WAITING"
    )]
    pub(crate) max_waiting: usize,
    /// Keys in use at the same time that memory is set aside for, about 50 bytes each
    #[arg(
        long,
        value_name = "N",
        default_value_t = 100_000,
        env = "TOLLGATE_KEYS"
    )]
    pub(crate) keys: usize,
    /// Threads that answer; without it as many as the machine has cores
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
    /// How long the server says that it is not ready, and still takes connections, before it stops listening: time for load balancers to notice
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "0s",
        value_parser = parse_drain,
        env = "TOLLGATE_DRAIN_DELAY"
    )]
    pub(crate) drain_delay: Duration,
    /// How long open connections may take to finish after that; a second signal cuts them at once
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
    fn no_delay_is_a_delay_too_and_an_hour_is_the_longest() {
        assert_eq!(parse_drain("0s"), Ok(Duration::ZERO));
        assert_eq!(parse_drain("0"), Ok(Duration::ZERO));
        assert_eq!(parse_drain("1m30s"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_drain("1h"), Ok(MAX_DRAIN));
        assert!(
            parse_drain("61m").is_err() && parse_drain("10").is_err() && parse_drain("").is_err()
        );
    }

    #[test]
    fn somebody_has_to_do_the_work() {
        assert_eq!(parse_threads("1"), Ok(1));
        assert!(
            parse_threads("0").is_err()
                && parse_threads("1025").is_err()
                && parse_threads("two").is_err()
        );
    }
}
