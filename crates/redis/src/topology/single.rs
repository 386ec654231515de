//! One server. Must not know: keys.

use std::sync::Arc;

use redis::Value;
use tokio::sync::Notify;
use tokio::time::Instant;
use tollgate_store::StoreError;

use crate::address::Endpoint;
use crate::link::{Dial, How, Link};
use crate::wire::ScriptCall;

/// The one server, at an address that stays. Whoever is behind it is found by connecting again.
#[derive(Debug)]
pub(crate) struct Single(Arc<Link>);

impl Single {
    pub(super) async fn open(
        dial: &Dial,
        endpoint: Endpoint,
        connections: usize,
    ) -> Result<Self, StoreError> {
        let link = Link::start(dial, endpoint, connections, &Arc::new(Notify::new()))?;
        link.wait_for_first_attempt().await;
        Ok(Self(Arc::new(link)))
    }

    pub(super) fn link(&self) -> Arc<Link> {
        Arc::clone(&self.0)
    }

    pub(super) async fn call(
        &self,
        request: &ScriptCall,
        until: Instant,
    ) -> Result<Value, StoreError> {
        let called = self.0.call(request, How::Plain, until).await;
        called.map_err(|failure| failure.error)
    }
}
