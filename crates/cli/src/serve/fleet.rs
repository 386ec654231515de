//! The store that several nodes share: reached if it was named, and looked after.
//!
//! Must not know: which store it is, what is shared.

use std::error::Error;

use tokio::runtime::Runtime;
use tollgate_server::Secret;
use tollgate_server::fleet::Shared;
use tollgate_store::{Clock as _, SystemClock};

use super::settings::Options;

/// Connects to the shared store, if one was named. It need not be there yet.
pub(super) fn open(
    options: &Options,
    secret: Option<Secret>,
    runtime: &Runtime,
) -> Result<Option<Shared>, Box<dyn Error>> {
    if !options.fleet.is_shared() {
        return Ok(None);
    }
    let Some(secret) = secret else {
        return Err(
            "--redis is set and there is no fleet secret: each process would draw its own and count by \
             itself, N times the limit; set --fleet-secret-file or TOLLGATE_FLEET_SECRET, the same on all nodes"
                .into(),
        );
    };
    let Some(store) = options.fleet.store(secret.for_names())? else {
        return Ok(None);
    };
    let connecting = Shared::connect(store, SystemClock::new().now());
    let shared = runtime
        .block_on(connecting)
        .map_err(|error| format!("--redis: {error}"))?;
    match options.fleet.nodes() {
        Some(nodes) => shared.fleet().set_nodes(nodes),
        None => tracing::warn!(
            "--fleet-nodes is not set: while the shared store is away and no node has been seen, each admits half of \
             every limit"
        ),
    }
    if !shared.store().is_connected() {
        tracing::warn!("the shared store cannot be reached; starting without it");
    }
    Ok(Some(shared))
}
