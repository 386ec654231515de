//! Sets up the gateway: its routes come from `--upstream` or from the policy.
//!
//! Must not know: how requests are forwarded.

use std::error::Error;
use std::sync::Arc;

use tokio::task::JoinSet;
use tollgate_policy::model::GatewaySpec;
use tollgate_server::HttpApi;
use tollgate_server::gateway::{Gateway, GatewayLimits};
use tollgate_server::listen::{
    BufferBudget, DrainOutcome, Listener, ListenerLimits, ShutdownSignal,
};
use tollgate_store::SystemClock;

use super::access_log::OpenAccessLog;
use super::settings::{AccessLogTarget, Options};

/// A gateway, and the log of its requests.
type OpenGateway = (Option<Arc<Gateway<SystemClock>>>, Option<OpenAccessLog>);

/// The gateway, if there is an upstream.
pub(super) fn open(
    options: &Options,
    app: &HttpApi<SystemClock>,
    buffers: &Arc<BufferBudget>,
) -> Result<OpenGateway, Box<dyn Error>> {
    let reloader = app.service().reloader();
    let policy = reloader.map(|reloader| reloader.engine().current_policy().1);
    let of_policy = policy.as_ref().and_then(|policy| policy.gateway.clone());
    let spec = match (&options.gateway.upstream, of_policy) {
        (Some(_), Some(_)) => {
            return Err("--upstream: the policy has `gateway`; use one of the two".into());
        }
        (Some(_), None) if app.envoy().is_by_files() => {
            return Err(
                "--upstream: files of envoyproxy/ratelimit limit descriptors, not requests; \
                        use a policy"
                    .into(),
            );
        }
        (Some(address), None) => GatewaySpec::single(address.clone()),
        (None, Some(spec)) => spec,
        (None, None) if options.gateway.access_log != AccessLogTarget::Off => {
            return Err(
                "--access-log: there is no gateway; set --upstream, or `gateway` in the policy"
                    .into(),
            );
        }
        (None, None) => return Ok((None, None)),
    };
    let trusted = options.trusted_proxies.clone().unwrap_or_default();
    let service = Arc::clone(app.service());
    let buffers = Arc::clone(buffers);
    let access_log = OpenAccessLog::start(&options.gateway)?;
    let gateway = match &access_log {
        Some(open) => {
            let dropped = Arc::clone(open.dropped_lines());
            app.metrics().expose_dropped_access_log_lines(dropped);
            Gateway::with_access_log(service, &spec, trusted, buffers, open.log())
        }
        None => Gateway::new(service, &spec, trusted, buffers),
    };
    let gateway = gateway.map_err(|error| format!("cannot start the gateway: {error}"))?;
    Ok((Some(Arc::new(gateway)), access_log))
}

/// Starts to serve, if the listener is on.
pub(super) fn start(
    gateway: Option<Arc<Gateway<SystemClock>>>,
    listener: Option<Listener>,
    bounds: ListenerLimits,
    stopping: &ShutdownSignal,
    listeners: &mut JoinSet<DrainOutcome>,
) {
    if let (Some(gateway), Some(listener)) = (gateway, listener) {
        let mut limits = GatewayLimits::default();
        limits.listener = bounds;
        listeners.spawn(gateway.run(listener, limits, stopping.wait()));
    }
}
