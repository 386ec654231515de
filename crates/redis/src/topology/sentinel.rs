//! The primary that sentinels name. A background task asks them once a second, and whenever the server seems
//! unreachable or replies that it is a replica. Callers never wait for them.
//!
//! A named server is used only after it has confirmed that it is a primary: the pool rejects replicas. Must not know:
//! keys.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use redis::RedisResult;
use tokio::sync::{Mutex, Notify};
use tollgate_store::{StoreError, StoreErrorKind};

use crate::address::Endpoint;
use crate::call_failure::RoutingHint;
use crate::connection::PipelinedConnection;
use crate::pool::{CallDeadline, CallMode, ConnectionPool, Connector};
use crate::task::{SupervisedTask, jittered};
use crate::wire::{ScriptCall, ServerReply};

/// How often the sentinels are asked without a reason. It bounds how long a partitioned primary is used.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// The longest pause between two queries while something is wrong.
const PAUSE: Duration = Duration::from_millis(100);

/// The current primary, and the task that follows failovers.
#[derive(Debug)]
pub(crate) struct Sentinel {
    state: Arc<SentinelState>,
    _watcher: SupervisedTask,
}

#[derive(Debug)]
struct SentinelState {
    connector: Connector,
    connections: usize,
    current: RwLock<Option<Arc<ConnectionPool>>>,
    refresh_signal: Arc<Notify>,
    client: Mutex<SentinelClient>,
}

impl Sentinel {
    pub(super) async fn open(
        connector: Connector,
        client: SentinelClient,
        connections: usize,
    ) -> Result<Self, StoreError> {
        let state = Arc::new(SentinelState {
            connector,
            connections,
            current: RwLock::new(None),
            refresh_signal: Arc::new(Notify::new()),
            client: Mutex::new(client),
        });
        // Without a reply the store exists anyway, and the task keeps asking.
        let _is_connected = state.update_primary().await;
        let watching = Arc::clone(&state);
        let watcher = SupervisedTask::start(move || Arc::clone(&watching).watch())?;
        Ok(Self {
            state,
            _watcher: watcher,
        })
    }

    pub(super) fn pool(&self) -> Option<Arc<ConnectionPool>> {
        self.state.pool()
    }

    pub(super) async fn call(
        &self,
        request: &ScriptCall,
        deadline: &mut CallDeadline,
    ) -> Result<ServerReply, StoreError> {
        let Some(pool) = self.state.pool() else {
            self.state.refresh_signal.notify_one();
            let detail = "no sentinel has named a primary";
            return Err(StoreError::new(StoreErrorKind::Unreachable, detail));
        };
        let called = pool.call(request, CallMode::Plain, deadline).await;
        called.map_err(|failure| {
            if failure.hint != RoutingHint::None {
                self.state.refresh_signal.notify_one();
            }
            failure.error
        })
    }
}

impl SentinelState {
    fn pool(&self) -> Option<Arc<ConnectionPool>> {
        let current = self.current.read();
        current.unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn watch(self: Arc<Self>) {
        loop {
            let _waited = tokio::time::timeout(ASK_EVERY, self.refresh_signal.notified()).await;
            if !self.update_primary().await {
                self.refresh_signal.notify_one();
            }
            tokio::time::sleep(jittered(PAUSE)).await;
        }
    }

    /// Asks for the primary and uses it once it is connected. Returns whether all is well.
    async fn update_primary(&self) -> bool {
        let Some(named) = self.client.lock().await.find().await else {
            return false;
        };
        let current = self.pool();
        if let Some(pool) = &current
            && *pool.endpoint() == named
        {
            return pool.is_connected();
        }
        let Ok(pool) = ConnectionPool::start(
            &self.connector,
            named,
            self.connections,
            &self.refresh_signal,
        ) else {
            return false;
        };
        pool.wait_for_first_attempt().await;
        let is_up = pool.is_connected();
        // A server that is named before its promotion is not used yet, unless there is no other.
        if is_up || current.is_none() {
            let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
            *current = Some(Arc::new(pool));
        }
        is_up
    }
}

/// Queries sentinels, the last one that replied first.
#[derive(Debug)]
pub(super) struct SentinelClient {
    connector: Connector,
    sentinels: Vec<Endpoint>,
    master: String,
    /// The connection to the first sentinel, if there is one.
    connection: Option<PipelinedConnection>,
}

impl SentinelClient {
    pub(super) const fn new(
        connector: Connector,
        sentinels: Vec<Endpoint>,
        master: String,
    ) -> Self {
        Self {
            connector,
            sentinels,
            master,
            connection: None,
        }
    }

    /// The primary that the first replying sentinel names.
    async fn find(&mut self) -> Option<Endpoint> {
        for _ in 0..self.sentinels.len() {
            let first = self.sentinels.first()?.clone();
            let timeout = self.connector.deadline().saturating_mul(2);
            let reply = tokio::time::timeout(timeout, self.ask(&first)).await;
            if let Ok(Ok(Some(named))) = reply {
                return Some(named);
            }
            self.connection = None;
            self.sentinels.rotate_left(1);
        }
        None
    }

    async fn ask(&mut self, sentinel: &Endpoint) -> RedisResult<Option<Endpoint>> {
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => {
                let credentials = self.connector.credentials().await?;
                self.connector
                    .connect(sentinel, credentials.as_ref())
                    .await?
            }
        };
        let mut command = redis::cmd("SENTINEL");
        command.arg("GET-MASTER-ADDR-BY-NAME").arg(&self.master);
        let reply = connection.query(&command).await?;
        let named: Option<(String, u16)> = redis::from_redis_value(reply)?;
        self.connection = Some(connection);
        Ok(named.map(|(host, port)| Endpoint::reported_by(&host, port, sentinel)))
    }
}
