//! `tollgate load`: sends requests at a chosen rate and reports what came back.
//!
//! The model is open: requests are due at instants that do not depend on responses, and latencies count from those instants. So
//! a server that stalls cannot hide the requests that it kept waiting. `schedule` says when requests are due, `run` sends
//! them, `measurements` counts, `report` renders. Must not know: how servers limit.

mod access_log;
mod arguments;
mod html;
mod measurements;
mod pacer;
mod plot;
mod progress;
mod report;
mod run;
mod schedule;

pub(crate) use arguments::Options;

use std::path::Path;
use std::time::Duration;

use crate::http_client::{HttpClient, Target};
use crate::json::print_json;
use crate::output::{CommandError, is_stderr_terminal, print, print_error};
use measurements::Measurements;
use progress::Progress;
use report::LoadReport;
use run::LoadPlan;

/// Runs a load. Returns whether every request got a response.
pub(crate) fn load(options: &Options) -> Result<bool, CommandError> {
    let target = Target::parse(&options.url, options.yes_really.as_deref())?;
    let template = options.request_template(&target)?;
    let schedule = options.schedule()?;
    if let Some(path) = &options.html {
        // A path that cannot be written must not cost a run of hours.
        let file = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(path);
        file.map_err(|error| html_error(path, &error))?;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| {
            CommandError::Other(format!("cannot start the runtime: {error}").into())
        })?;
    let measurements = runtime.block_on(async {
        let client = HttpClient::new(&target, options.http2, options.max_in_flight, &options.tls)?;
        let progress = Progress::new(schedule.length(), !options.quiet && is_stderr_terminal());
        let plan = LoadPlan {
            client,
            template,
            schedule,
            max_in_flight: options.max_in_flight,
            timeout: options.timeout(),
        };
        run::run(plan, progress).await
    })?;
    finish(options, &target, &measurements)
}

fn finish(
    options: &Options,
    target: &Target,
    measurements: &Measurements,
) -> Result<bool, CommandError> {
    let report = LoadReport::new(target.redacted(), measurements);
    if options.json {
        print_json(&report)?;
    } else {
        print(&report.text())?;
    }
    if let Some(path) = &options.html {
        std::fs::write(path, html::render(&report)).map_err(|error| html_error(path, &error))?;
        print_error(&format!("written to {}\n", path.display()));
    }
    Ok(report.errors == 0 && report.unsent == 0)
}

fn html_error(path: &Path, error: &std::io::Error) -> CommandError {
    CommandError::Other(format!("--html {}: {error}", path.display()).into())
}

/// Seconds for people and machines.
fn seconds(duration: Duration) -> f64 {
    duration.as_secs_f64()
}
