//! What the server says at its start and end: the log line, the addresses and example commands on stdout, the totals.
//!
//! Must not know: how anything is served.

use std::path::Path;

use tollgate_server::listen::LocalEndpoint;
use tollgate_server::resp::RespServer;
use tollgate_server::{HttpApi, ListenerCounters};
use tollgate_store::SystemClock;

use crate::output::{is_stdout_terminal, print_in_background};

/// The address of each listener that is on.
#[derive(Debug, Default)]
pub(super) struct ListenerAddresses {
    pub(super) api: Option<LocalEndpoint>,
    pub(super) grpc: Option<LocalEndpoint>,
    pub(super) resp: Option<LocalEndpoint>,
    pub(super) admin: Option<LocalEndpoint>,
    pub(super) gateway: Option<LocalEndpoint>,
}

/// Logs what runs, and prints the addresses; with `tour` also the limits and commands to try.
///
/// The tour is for a person who tries the program: with a policy, or without a terminal, it would only hide the log.
pub(super) fn announce_start(
    app: &HttpApi<SystemClock>,
    policy: Option<&Path>,
    addresses: &ListenerAddresses,
) {
    let url = |scheme, at: &Option<LocalEndpoint>| at.as_ref().map(|at| listener_url(scheme, at));
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        policy = policy
            .map_or("demonstration".into(), Path::to_string_lossy)
            .as_ref(),
        limits = app.limit_count(),
        http = url("http", &addresses.api),
        grpc = url("grpc", &addresses.grpc),
        redis = url("redis", &addresses.resp),
        admin = url("http", &addresses.admin),
        gateway = url("http", &addresses.gateway),
        "server started"
    );
    let tour = policy.is_none() && is_stdout_terminal();
    // A pipe that nobody reads must hold up neither listeners nor the end of the process.
    print_in_background(startup_text(app, addresses, tour));
}

fn startup_text(app: &HttpApi<SystemClock>, addresses: &ListenerAddresses, tour: bool) -> String {
    let mut text = String::new();
    if let Some(grpc) = &addresses.grpc {
        text.push_str(&format!("listening on {}\n", listener_url("grpc", grpc)));
    }
    if let Some(resp) = &addresses.resp {
        text.push_str(&format!("listening on {}\n", listener_url("redis", resp)));
    }
    if let Some(gateway) = &addresses.gateway {
        text.push_str(&format!("gateway on {}\n", listener_url("http", gateway)));
    }
    if let Some(admin) = &addresses.admin {
        text.push_str(&format!(
            "admin listener on {}\n",
            listener_url("http", admin)
        ));
    }
    // Last, because scripts that start a server wait for this line.
    if let Some(api) = &addresses.api {
        text.push_str(&format!("listening on {}\n", listener_url("http", api)));
        if tour {
            let redis = addresses.resp.as_ref();
            let redis = redis.map(|at| format!("{} CL.THROTTLE user1 15 30 60 1", at.redis_cli()));
            let admin = addresses.admin.as_ref();
            let admin = admin.map(|at| format!("{} {}/metrics", at.curl(), at.url()));
            let also: Vec<String> = redis.into_iter().chain(admin).collect();
            text.push('\n');
            text.push_str(&app.welcome_text(api, &also));
        }
    }
    text.push('\n');
    text
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

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_service::demo_policy;

    /// The tour filled the logs of every container and hid the lines that mattered.
    #[test]
    fn the_tour_is_separate_from_the_addresses() {
        let app = HttpApi::new(&demo_policy().unwrap(), 10, SystemClock::new()).unwrap();
        let at = |port| Some(LocalEndpoint::Tcp(([127, 0, 0, 1], port).into()));
        let addresses = ListenerAddresses {
            api: at(1),
            grpc: None,
            resp: at(2),
            admin: at(3),
            gateway: None,
        };
        let lines = "listening on redis://127.0.0.1:2\nadmin listener on http://127.0.0.1:3\nlistening on http://127.0.0.1:1\n\n";
        assert_eq!(startup_text(&app, &addresses, false), lines);
        let tour = startup_text(&app, &addresses, true);
        assert!(tour.starts_with(lines), "{tour}");
        for part in [
            "per-key: every request;",
            "http://127.0.0.1:1/v1/check?key=alice",
            "redis-cli -p 2 CL.THROTTLE user1 15 30 60 1",
            "curl http://127.0.0.1:3/metrics",
        ] {
            assert!(tour.contains(part), "{tour}");
        }
        assert_eq!(app.limit_count(), 6);
        let tls = LocalEndpoint::Tls(([127, 0, 0, 1], 2).into());
        let addresses = ListenerAddresses {
            resp: Some(tls),
            ..addresses
        };
        let tour = startup_text(&app, &addresses, true);
        assert!(tour.contains("redis-cli --tls -p 2 "), "{tour}");
    }
}
