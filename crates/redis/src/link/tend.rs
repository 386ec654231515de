//! The tasks in the background: one per connection makes it, loads the scripts, looks after it, and makes it anew.
//!
//! The only place that starts tasks. Each is watched: if it should panic it is started again, and dropping the link
//! ends it. Must not know: batches, what callers wait for.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use redis::{AsyncConnectionConfig, Client, RedisResult};
use tokio::task::{AbortHandle, JoinSet};
use tollgate_store::{ErrorKind, StoreError};

use super::lane::Lane;
use crate::script::Which;

/// How often an idle connection is tried.
const PROBE_EVERY: Duration = Duration::from_secs(1);
/// How long a server that is only slow may take over a probe before the connection is given up.
const PROBE_DEADLINE: Duration = Duration::from_secs(1);
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// The background tasks of a link. They end when this is dropped.
#[derive(Debug)]
pub(super) struct Tenders(Vec<AbortHandle>);

impl Tenders {
    pub(super) fn start(
        lanes: &[Arc<Lane>],
        client: &Client,
        config: &AsyncConnectionConfig,
        connect_deadline: Duration,
    ) -> Result<Self, StoreError> {
        if tokio::runtime::Handle::try_current().is_err() {
            let detail = "a store over a network needs a tokio runtime around it";
            return Err(StoreError::new(ErrorKind::BadRequest, detail));
        }
        let handles = lanes
            .iter()
            .map(|lane| {
                let tender = Tender {
                    lane: Arc::clone(lane),
                    client: client.clone(),
                    config: config.clone(),
                    connect_deadline,
                };
                #[expect(
                    clippy::disallowed_methods,
                    reason = "this is the supervised module: the task watches another and starts it again"
                )]
                tokio::spawn(watch(tender)).abort_handle()
            })
            .collect();
        Ok(Self(handles))
    }
}

impl Drop for Tenders {
    fn drop(&mut self) {
        for handle in &self.0 {
            handle.abort();
        }
    }
}

#[derive(Clone, Debug)]
struct Tender {
    lane: Arc<Lane>,
    client: Client,
    config: AsyncConnectionConfig,
    connect_deadline: Duration,
}

/// Runs a tender, and again should it ever end.
async fn watch(tender: Tender) {
    loop {
        let mut only = JoinSet::new();
        only.spawn(tender.clone().tend());
        only.join_next().await;
        tokio::time::sleep(jittered(LONGEST_PAUSE)).await;
    }
}

impl Tender {
    async fn tend(self) {
        let mut pause = SHORTEST_PAUSE;
        for generation in 1.. {
            if let Ok(connection) = self.connect().await {
                self.lane.put(connection, generation);
                pause = SHORTEST_PAUSE;
                self.look_after(generation).await;
            }
            self.lane.mark_tried();
            // Full jitter: a fleet that lost its server together does not come back together.
            tokio::time::sleep(jittered(pause)).await;
            pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
        }
    }

    async fn connect(&self) -> RedisResult<redis::aio::MultiplexedConnection> {
        let connecting = async {
            let mut connection = self
                .client
                .get_multiplexed_async_connection_with_config(&self.config)
                .await?;
            let mut load = redis::pipe();
            for which in Which::EACH {
                load.cmd("SCRIPT").arg("LOAD").arg(which.script().text);
            }
            // A server that cannot load scripts yet is of no use yet.
            load.query_async::<()>(&mut connection).await?;
            Ok(connection)
        };
        match tokio::time::timeout(self.connect_deadline, connecting).await {
            Ok(connected) => connected,
            Err(_elapsed) => Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()),
        }
    }

    /// Returns when the connection is of no more use.
    async fn look_after(&self, generation: u64) {
        loop {
            // Either way it is looked at: after a doubt at once, otherwise now and then.
            let _waited = tokio::time::timeout(PROBE_EVERY, self.lane.doubted()).await;
            let Some(mut current) = self.lane.current() else {
                return;
            };
            // A word that only this probe's reply has: on a connection that lost a reply, every later call would get
            // the reply of another.
            let word = RandomState::new().hash_one(generation);
            let mut ping = redis::cmd("PING");
            ping.arg(word);
            let probe = ping.query_async::<u64>(&mut current.connection);
            let probed = tokio::time::timeout(PROBE_DEADLINE, probe).await;
            let is_well = matches!(probed, Ok(Ok(echo)) if echo == word);
            if !is_well {
                self.lane.give_up(generation);
                return;
            }
        }
    }
}

/// Somewhere between nothing and this, differently each time.
fn jittered(most: Duration) -> Duration {
    let random = RandomState::new().hash_one(0_u8);
    let most = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX).max(1);
    Duration::from_nanos(random.checked_rem(most).unwrap_or(0))
}
