//! A single server. Must not know: keys.

use std::sync::Arc;

use tokio::sync::Notify;
use tollgate_store::StoreError;

use crate::address::Endpoint;
use crate::pool::{CallDeadline, CallMode, ConnectionPool, Connector};
use crate::wire::{ScriptCall, ServerReply};

/// The server at a fixed address. A failover behind the address is found by reconnecting.
#[derive(Debug)]
pub(crate) struct SingleServer(Arc<ConnectionPool>);

impl SingleServer {
    pub(super) async fn open(
        connector: &Connector,
        endpoint: Endpoint,
        connections: usize,
    ) -> Result<Self, StoreError> {
        let pool =
            ConnectionPool::start(connector, endpoint, connections, &Arc::new(Notify::new()))?;
        pool.wait_for_first_attempt().await;
        Ok(Self(Arc::new(pool)))
    }

    pub(super) fn pool(&self) -> Arc<ConnectionPool> {
        Arc::clone(&self.0)
    }

    pub(super) async fn call(
        &self,
        request: &ScriptCall,
        deadline: &mut CallDeadline,
    ) -> Result<ServerReply, StoreError> {
        let called = self.0.call(request, CallMode::Plain, deadline).await;
        called.map_err(|failure| failure.error)
    }
}
