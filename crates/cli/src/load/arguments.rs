//! The command line of `tollgate load`.
//!
//! Must not know: how requests are sent or counted.

use std::path::PathBuf;
use std::time::Duration;

use tollgate_core::{Nanos, QuotaUnit};
use tollgate_policy::grammar::{GrammarError, parse_duration, parse_rate};
use tollgate_policy::model::Period;

use super::access_log;
use super::schedule::{Arrivals, Schedule, Step};
use crate::http_client::{RequestTemplate, Target, TlsOptions};
use crate::output::CommandError;

/// The longest run. A longer one is almost always a mistake, and the result keeps one row for each second.
const MAX_DURATION: Duration = Duration::from_hours(6);
/// The most requests of one run.
pub(super) const MAX_REQUESTS: u64 = 100_000_000;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Where to send requests, for example http://127.0.0.1:8080/v1/check?key=a
    #[arg(value_name = "URL")]
    pub(super) url: String,
    /// Requests per period, for example 200/s or 6000/min
    #[arg(long, value_name = "RATE", default_value = "100/s", conflicts_with_all = ["steps", "from_log"])]
    rate: String,
    /// How long to send
    #[arg(long, value_name = "DURATION", default_value = "10s", conflicts_with_all = ["steps", "from_log"])]
    duration: String,
    /// Rates one after the other, for example 100/s:10s,500/s:20s
    #[arg(long, value_name = "STEPS", conflicts_with = "from_log")]
    steps: Option<String>,
    /// Send what an access log in the common or combined format records: its methods, paths and distances in time
    #[arg(long, value_name = "FILE")]
    from_log: Option<PathBuf>,
    /// How many times faster than it was recorded a log is sent
    #[arg(
        long,
        value_name = "FACTOR",
        default_value_t = 1.0,
        requires = "from_log"
    )]
    speed: f64,
    /// Random distances as independent users make them (a Poisson process) instead of equal ones
    #[arg(long, conflicts_with = "from_log")]
    poisson: bool,
    /// The seed of --poisson; the same seed makes the same instants
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// The method
    #[arg(short = 'X', long, value_name = "METHOD", default_value = "GET")]
    method: String,
    /// A header, for example 'x-api-key: k'; may be repeated. The letter n in braces becomes the number of the request
    #[arg(short = 'H', long = "header", value_name = "HEADER")]
    headers: Vec<String>,
    /// The body of every request
    #[arg(short = 'd', long, value_name = "TEXT")]
    data: Option<String>,
    /// Use HTTP/2, without TLS by prior knowledge
    #[arg(long)]
    pub(super) http2: bool,
    #[command(flatten)]
    pub(super) tls: TlsOptions,
    /// The most requests under way. Requests beyond it are late, and their latency says so
    #[arg(long, value_name = "COUNT", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(super) max_in_flight: u32,
    /// A request that has no response for so long has failed
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_timeout)]
    timeout: Duration,
    /// Permit a host that is not this machine. The name must be the host of the URL
    #[arg(long, value_name = "HOST")]
    pub(super) yes_really: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
    /// Write the result as a page with plots
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,
    /// Show no progress
    #[arg(short, long)]
    pub(super) quiet: bool,
}

impl Options {
    pub(super) const fn timeout(&self) -> Duration {
        self.timeout
    }

    pub(super) fn request_template(
        &self,
        target: &Target,
    ) -> Result<RequestTemplate, CommandError> {
        let body = self.data.clone().unwrap_or_default();
        RequestTemplate::new(target, &self.method, &self.headers, body)
    }

    pub(super) fn schedule(&self) -> Result<Schedule, CommandError> {
        let usage = |error: String| CommandError::Usage(error);
        let schedule = match &self.from_log {
            Some(path) => {
                if !(self.speed.is_finite() && self.speed > 0.0) {
                    return Err(usage(format!("--speed {}: it must be above 0", self.speed)));
                }
                access_log::read(path, self.speed)?
            }
            None => self.steps()?,
        };
        if schedule.length() > MAX_DURATION {
            let help = match self.from_log {
                Some(_) => "; a higher --speed makes it shorter",
                None => "",
            };
            return Err(usage(format!("a run takes at most 6 hours{help}")));
        }
        if schedule.expected_requests() > MAX_REQUESTS {
            return Err(usage(format!(
                "a run sends at most {MAX_REQUESTS} requests"
            )));
        }
        Ok(schedule)
    }

    fn steps(&self) -> Result<Schedule, CommandError> {
        let usage = |error: String| CommandError::Usage(error);
        let steps = match &self.steps {
            Some(text) => parse_steps(text).map_err(|error| usage(format!("--steps: {error}")))?,
            None => {
                let rate = parse_interval(&self.rate)
                    .map_err(|error| usage(format!("--rate: {error}")))?;
                let duration = parse_duration(&self.duration)
                    .map_err(|error| usage(format!("--duration: {}", message(&error))))?;
                vec![Step::new(rate, duration.into())]
            }
        };
        let arrivals = match self.poisson {
            true => Arrivals::Poisson { seed: self.seed },
            false => Arrivals::Even,
        };
        Ok(Schedule::from_steps(steps, arrivals))
    }
}

fn parse_timeout(text: &str) -> Result<Duration, String> {
    let timeout: Duration = parse_duration(text)
        .map_err(|error| message(&error))?
        .into();
    match timeout.is_zero() {
        true => Err("it must be above 0".to_owned()),
        false => Ok(timeout),
    }
}

/// The distance between two requests of a rate, in nanoseconds.
fn parse_interval(text: &str) -> Result<f64, String> {
    let rate = parse_rate(text, QuotaUnit::Requests).map_err(|error| message(&error))?;
    let Period::Span(period) = rate.period else {
        return Err(format!(
            "{text:?}: a load has no calendar; write seconds, minutes or hours"
        ));
    };
    if rate.units == 0 {
        return Err(format!("{text:?}: it must be above 0"));
    }
    Ok(nanos(period) / units(rate.units))
}

fn parse_steps(text: &str) -> Result<Vec<Step>, String> {
    text.split(',')
        .map(|step| {
            let (rate, duration) = step
                .split_once(':')
                .ok_or_else(|| format!("{step:?}: write RATE:DURATION, for example 100/s:10s"))?;
            let duration = parse_duration(duration).map_err(|error| message(&error))?;
            Ok(Step::new(parse_interval(rate)?, duration.into()))
        })
        .collect()
}

fn message(error: &GrammarError) -> String {
    error.message.to_string()
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a distance in time needs no more digits"
)]
fn nanos(period: Nanos) -> f64 {
    period.as_nanos() as f64
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a distance in time needs no more digits"
)]
fn units(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_have_a_rate_and_a_duration() {
        let steps = parse_steps("100/s:10s,600/min:1m").unwrap();
        assert_eq!(
            steps,
            [
                Step::new(10_000_000.0, Duration::from_secs(10)),
                Step::new(100_000_000.0, Duration::from_mins(1)),
            ]
        );
        for (wrong, part) in [
            ("100/s", "write RATE:DURATION"),
            ("0/s:10s", "above 0"),
            ("10/month:10s", "no calendar"),
            ("x/s:10s", "x"),
            ("", "write RATE:DURATION"),
        ] {
            let error = parse_steps(wrong).unwrap_err();
            assert!(error.contains(part), "{wrong}: {error}");
        }
    }
}
