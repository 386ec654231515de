//! Sends requests when they are due, and measures what comes back.
//!
//! Must not know: when requests are due, how results are shown.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::measurements::{Measurements, Sample};
use super::pacer;
use super::progress::Progress;
use super::schedule::{DueRequest, Schedule};
use crate::http_client::{HttpClient, RequestFailure, RequestTemplate};
use crate::output::CommandError;

/// How often progress is shown.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);

/// What a run does.
pub(super) struct LoadPlan {
    pub(super) client: HttpClient,
    pub(super) template: RequestTemplate,
    pub(super) schedule: Schedule,
    pub(super) max_in_flight: u32,
    pub(super) timeout: Duration,
}

/// Runs until all requests have ended, or until Ctrl-C.
pub(super) async fn run(
    plan: LoadPlan,
    mut progress: Progress,
) -> Result<Measurements, CommandError> {
    let LoadPlan {
        client,
        template,
        schedule,
        max_in_flight,
        timeout,
    } = plan;
    let max_in_flight = usize::try_from(max_in_flight).unwrap_or(usize::MAX);
    let began = Instant::now();
    let mut due_requests = pacer::start(schedule, began)?;
    let mut under_way = JoinSet::new();
    let mut measurements = Measurements::default();
    let mut ticks = tokio::time::interval(PROGRESS_INTERVAL);
    let interrupt = tokio::signal::ctrl_c();
    tokio::pin!(interrupt);
    let mut is_sending = true;
    while is_sending || !under_way.is_empty() {
        let has_room = under_way.len() < max_in_flight;
        tokio::select! {
            _ = &mut interrupt => {
                // Requests that were due behind those under way would be left out otherwise, as in a closed loop.
                let due = due_requests.end().await;
                measurements.interrupt(under_way.len() + due);
                under_way.abort_all();
                break;
            }
            Some(ended) = under_way.join_next() => {
                let sample = ended.map_err(|error| CommandError::Other(error.into()))?;
                measurements.record(sample);
            }
            due = due_requests.next(), if is_sending && has_room => match due {
                Some(due) => {
                    let number = measurements.next_number();
                    let request = template.request(number, due.line.as_ref().map(|line| (line.method.as_str(), line.path.as_str())));
                    under_way.spawn(send(client.clone(), request, due, began, timeout));
                }
                None => is_sending = false,
            },
            _ = ticks.tick() => progress.show(began.elapsed(), &measurements),
        }
    }
    progress.clear();
    measurements.end(began.elapsed());
    Ok(measurements)
}

async fn send(
    client: HttpClient,
    request: Result<http::Request<crate::http_client::RequestBody>, RequestFailure>,
    due: DueRequest,
    began: Instant,
    limit: Duration,
) -> Sample {
    let sent = began.elapsed();
    let outcome = match request {
        Err(failure) => Err(failure),
        Ok(request) => match timeout(limit, client.send(request)).await {
            Ok(outcome) => outcome,
            Err(_elapsed) => Err(RequestFailure::Timeout),
        },
    };
    Sample {
        due: due.at,
        sent,
        done: began.elapsed(),
        outcome,
    }
}
