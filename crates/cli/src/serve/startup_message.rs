//! The startup message on stdout: addresses and example commands. The totals in the log at shutdown.
//!
//! Must not know: how anything is served.

use tollgate_server::listen::LocalEndpoint;
use tollgate_server::resp::RespServer;
use tollgate_server::{HttpApi, ListenerCounters};
use tollgate_store::SystemClock;

use crate::output::print_in_background;

/// The address of each listener that is on.
#[derive(Debug, Default)]
pub(super) struct ListenerAddresses {
    pub(super) api: Option<LocalEndpoint>,
    pub(super) grpc: Option<LocalEndpoint>,
    pub(super) resp: Option<LocalEndpoint>,
    pub(super) admin: Option<LocalEndpoint>,
}

/// Prints the addresses and commands to try.
pub(super) fn print_startup_message(app: &HttpApi<SystemClock>, addresses: &ListenerAddresses) {
    let mut text = String::new();
    if let Some(grpc) = &addresses.grpc {
        text.push_str(&format!("listening on {}\n", listener_url("grpc", grpc)));
    }
    if let Some(resp) = &addresses.resp {
        text.push_str(&format!("listening on {}\n", listener_url("redis", resp)));
    }
    if let Some(admin) = &addresses.admin {
        text.push_str(&format!(
            "admin listener on {}\n",
            listener_url("http", admin)
        ));
    }
    // Last, because scripts that start a server wait for this line.
    if let Some(api) = &addresses.api {
        text.push_str(&format!("listening on {}\n\n", listener_url("http", api)));
        let redis = addresses.resp.as_ref();
        let redis = redis.map(|at| format!("{} CL.THROTTLE user1 15 30 60 1", at.redis_cli()));
        let admin = addresses.admin.as_ref();
        let admin = admin.map(|at| format!("{} {}/metrics", at.curl(), at.url()));
        let also: Vec<String> = redis.into_iter().chain(admin).collect();
        text.push_str(&app.welcome_text(api, &also));
    }
    text.push('\n');
    // A pipe that nobody reads must hold up neither listeners nor the end of the process.
    print_in_background(text);
}

fn listener_url(scheme: &str, endpoint: &LocalEndpoint) -> String {
    match endpoint {
        LocalEndpoint::Tcp(address) => format!("{scheme}://{address}"),
        // `https`, `grpcs` and `rediss`.
        LocalEndpoint::Tls(address) => format!("{scheme}s://{address}"),
        LocalEndpoint::Unix(_) => format!("{endpoint} ({scheme})"),
    }
}

/// Logs the totals of all listeners in one line.
pub(super) fn log_shutdown_totals(
    app: &HttpApi<SystemClock>,
    resp: &RespServer<SystemClock>,
    listeners: [&ListenerCounters; 3],
    cut: usize,
) {
    let sum = |count: fn(&ListenerCounters) -> u64| listeners.into_iter().map(count).sum::<u64>();
    tracing::info!(
        cut,
        forgiven = app
            .service()
            .live_evictions()
            .saturating_add(resp.forgiven_keys()),
        tickets_given_up = app.service().ticket_usage().0,
        refused_connections = sum(ListenerCounters::refused_connections),
        accept_errors = sum(ListenerCounters::accept_errors),
        failed_handshakes = sum(ListenerCounters::failed_handshakes),
        panics = sum(ListenerCounters::panics),
        "stopped"
    );
}
