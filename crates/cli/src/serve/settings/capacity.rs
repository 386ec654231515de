//! Settings of capacity and shutdown.
//!
//! Must not know: what the settings do.

use std::time::Duration;

use tollgate_policy::grammar::parse_duration;

use super::parse_at_least_one;

/// The largest drain delay and drain timeout.
const MAX_DRAIN: Duration = Duration::from_secs(3_600);
/// The smallest buffer budget. A quota report has up to 1 MiB, and a quarter of the budget is kept for small requests.
const MIN_BUFFERED_BYTES: usize = 2 << 20;
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
    /// The same for the connections of one IPv4 address or IPv6 /64. Connections of a proxy in front count for the proxy. Default: no limit
    #[arg(
        long,
        value_name = "N",
        value_parser = parse_at_least_one,
        env = "TOLLGATE_MAX_CONNECTIONS_PER_ADDRESS"
    )]
    pub(crate) max_connections_per_address: Option<usize>,
    /// Bytes buffered for all connections of all listeners together: requests that are not complete and replies that are not read. A number
    /// with `KiB`, `MiB` or `GiB`. The first 4 KiB of each connection are not counted (16 KiB with gRPC). A request that does not fit is
    /// refused
    #[arg(
        long,
        value_name = "BYTES",
        default_value = "64MiB",
        value_parser = parse_buffered_bytes,
        env = "TOLLGATE_MAX_BUFFERED_BYTES"
    )]
    pub(crate) max_buffered_bytes: usize,
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

/// Parses a number of bytes with a binary unit.
fn parse_buffered_bytes(text: &str) -> Result<usize, String> {
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30)];
    let unit = units.iter().find_map(|(unit, shift)| {
        let number = text.strip_suffix(unit)?;
        Some((number.trim_end(), *shift))
    });
    let Some((number, shift)) = unit else {
        return Err("it must be a number with KiB, MiB or GiB, such as 64MiB".to_owned());
    };
    let bytes = parse_at_least_one(number)?
        .checked_mul(1 << shift)
        .ok_or("it is too large")?;
    if bytes < MIN_BUFFERED_BYTES {
        return Err("it must be at least 2MiB, so that the longest message fits".to_owned());
    }
    Ok(bytes)
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
    fn a_buffer_budget_is_a_number_with_a_unit() {
        assert_eq!(parse_buffered_bytes("64MiB"), Ok(64 << 20));
        assert_eq!(parse_buffered_bytes("4096KiB"), Ok(4 << 20));
        assert_eq!(parse_buffered_bytes("1 GiB"), Ok(1 << 30));
        for wrong in [
            "",
            "64",
            "64MB",
            "MiB",
            "0MiB",
            "1MiB",
            "-1MiB",
            "1.5GiB",
            "99999999999999GiB",
        ] {
            assert!(parse_buffered_bytes(wrong).is_err(), "{wrong}");
        }
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
