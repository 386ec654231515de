//! What a server says on its terminal: where it listens and what to try, and at the end what came of it.
//!
//! Must not know: how anything is served.

use std::io::{self, Write};

use tollgate_server::listen::Reached;
use tollgate_server::resp::Resp;
use tollgate_server::{HttpApi, ListenerCounters};
use tollgate_store::SystemClock;

/// Where each listener is reached, if it is there.
#[derive(Debug, Default)]
pub(super) struct Places {
    pub(super) api: Option<Reached>,
    pub(super) grpc: Option<Reached>,
    pub(super) resp: Option<Reached>,
    pub(super) admin: Option<Reached>,
}

/// Says where it listens and what to try.
pub(super) fn announce(app: &HttpApi<SystemClock>, places: &Places) {
    let mut text = String::new();
    if let Some(grpc) = &places.grpc {
        text.push_str(&format!("listening on {}\n", spoken("grpc", grpc)));
    }
    if let Some(resp) = &places.resp {
        text.push_str(&format!("listening on {}\n", spoken("redis", resp)));
    }
    if let Some(admin) = &places.admin {
        text.push_str(&format!("admin pages on {}\n", spoken("http", admin)));
    }
    // Last, because whoever waits for a server that is ready waits for this line.
    if let Some(api) = &places.api {
        text.push_str(&format!("listening on {}\n\n", spoken("http", api)));
        let redis = places.resp.as_ref();
        let redis = redis.map(|at| format!("{} CL.THROTTLE user1 15 30 60 1", at.redis_cli()));
        let admin = places.admin.as_ref();
        let admin = admin.map(|at| format!("{} {}/metrics", at.curl(), at.url()));
        let also: Vec<String> = redis.into_iter().chain(admin).collect();
        text.push_str(&app.introduction(api, &also));
    }
    let mut stdout = io::stdout().lock();
    let written = writeln!(stdout, "{text}");
    if let Err(error) = written.and_then(|()| stdout.flush()) {
        // Nobody reads it; the server is no worse for that.
        tracing::warn!(%error, "could not write to stdout");
    }
}

fn spoken(scheme: &str, place: &Reached) -> String {
    match place {
        Reached::Tcp(address) => format!("{scheme}://{address}"),
        // `https` and `rediss` alike.
        Reached::Tls(address) => format!("{scheme}s://{address}"),
        Reached::Unix(_) => format!("{place} ({scheme})"),
    }
}

/// What came of it all, in one line.
pub(super) fn tell_the_end(
    app: &HttpApi<SystemClock>,
    resp: &Resp<SystemClock>,
    of_all: [&ListenerCounters; 3],
    cut: usize,
) {
    let sum = |count: fn(&ListenerCounters) -> u64| of_all.into_iter().map(count).sum::<u64>();
    tracing::info!(
        cut,
        forgiven = app.service().forgiven().saturating_add(resp.forgiven()),
        tickets_given_up = app.service().ticket_usage().0,
        refused_connections = sum(ListenerCounters::refused_connections),
        accept_errors = sum(ListenerCounters::accept_errors),
        failed_handshakes = sum(ListenerCounters::failed_handshakes),
        panics = sum(ListenerCounters::panics),
        "stopped"
    );
}
