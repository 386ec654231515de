//! `tollgate call`: one request by a client that respects limits, and what the server said about them.
//!
//! The response goes to stdout, everything else to stderr. `reporting_client` sends and tells, the pacer of `tollgate-client` waits and
//! retries, `report` renders. Must not know: how limits are read and obeyed.

mod arguments;
mod report;
mod reporting_client;

pub(crate) use arguments::Options;

use http::{Request, Response};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tollgate_client::{
    ClientError, Deadline, Nanos, PacedBody, PacedService, PacerLayer, SharedPacer,
};
use tower_layer::Layer as _;
use tower_service::Service as _;

use crate::http_client::{HttpClient, RequestBody, RequestFailure, Target};
use crate::output::{CommandError, print, print_bytes, print_error};
use reporting_client::{Learned, ReportingClient};

type PacedResponse = Response<PacedBody<Incoming>>;

/// Calls a server. Returns whether the status of the response is below 400.
pub(crate) fn call(options: &Options) -> Result<bool, CommandError> {
    let target = Target::anywhere(&options.url)?;
    let template = options.request_template(&target)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| other(format!("cannot start the runtime: {error}")))?;
    runtime.block_on(async {
        let client = HttpClient::new(&target, options.http2, 1, &options.tls)?;
        let client = ReportingClient::new(client, options.quiet);
        let request = template
            .request(0, None)
            .map_err(|failure| other(failure.name().to_owned()))?;
        let called = call_and_print(options, &target, client.clone(), request);
        let is_ok = tokio::time::timeout(options.max_time, called)
            .await
            .unwrap_or_else(|_elapsed| {
                Err(other(format!(
                    "no complete response within {:?} (--max-time)",
                    options.max_time
                )))
            });
        if !options.quiet {
            print_learned(&client.learned());
        }
        is_ok
    })
}

async fn call_and_print(
    options: &Options,
    target: &Target,
    client: ReportingClient,
    request: Request<RequestBody>,
) -> Result<bool, CommandError> {
    let pacer = SharedPacer::new(options.pacer_settings());
    let deadline = pacer.now().after(Nanos::from(options.max_time));
    let layer = PacerLayer::with_pacer(pacer);
    let layer = match options.retry_all_methods {
        true => layer.retry_all_methods(),
        false => layer,
    };
    let mut service = layer.layer(client);
    let mut is_unreachable = false;
    let response = loop {
        let mut request = request.clone();
        request.extensions_mut().insert(Deadline(deadline));
        let failure = match send(&mut service, request).await {
            Ok(response) => break response,
            // The pacer backs off before the next attempt.
            Err(ClientError::Inner(RequestFailure::Connect)) if options.until_ok => {
                is_unreachable = true;
                continue;
            }
            Err(ClientError::Inner(failure)) => failure,
            Err(ClientError::Pace(_)) if is_unreachable => RequestFailure::Connect,
            Err(ClientError::Pace(error)) => return Err(other(error.to_string())),
        };
        let failure = failure.name();
        return Err(other(format!("{}: {failure}", target.redacted())));
    };
    let is_ok = response.status().as_u16() < 400;
    print_response(response, options.include).await?;
    Ok(is_ok)
}

async fn send(
    service: &mut PacedService<ReportingClient>,
    request: Request<RequestBody>,
) -> Result<PacedResponse, ClientError<RequestFailure>> {
    std::future::poll_fn(|context| service.poll_ready(context)).await?;
    service.call(request).await
}

/// Prints the body as it comes, so a large one takes no memory. It ends when nobody reads any more, as for `head`.
async fn print_response(response: PacedResponse, with_head: bool) -> Result<(), CommandError> {
    let (head, mut body) = response.into_parts();
    if with_head {
        print(&format!("{:?} {}\n", head.version, head.status))?;
        for (name, value) in &head.headers {
            print(&format!("{name}: "))?;
            print_bytes(value.as_bytes())?;
            print("\n")?;
        }
        print("\n")?;
    }
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| other(format!("the response ended early: {error}")))?;
        if let Some(bytes) = frame.data_ref()
            && !print_bytes(bytes)?
        {
            return Ok(());
        }
    }
    Ok(())
}

fn print_learned(learned: &Learned) {
    let table = report::limits(&learned.info);
    let attempts = match learned.attempts {
        0 | 1 => String::new(),
        count => format!("{count} attempts\n"),
    };
    if !table.is_empty() || !attempts.is_empty() {
        print_error(&format!("\n{attempts}{table}"));
    }
}

fn other(message: String) -> CommandError {
    CommandError::Other(message.into())
}
