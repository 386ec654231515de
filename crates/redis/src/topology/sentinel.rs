//! The primary that sentinels name. A background task asks them once a second, and whenever the server seems
//! unreachable or replies that it is a replica. Callers never wait for them.
//!
//! A named server is used only after it has confirmed that it is a primary: the pool rejects replicas. Must not know:
//! keys.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{RedisResult, Value};
use tokio::sync::{Mutex, Notify};
use tokio::time::Instant;
use tollgate_store::{StoreError, StoreErrorKind};

use crate::address::Endpoint;
use crate::call_failure::RoutingHint;
use crate::pool::{CallMode, ConnectionPool, Connector};
use crate::task::{SupervisedTask, jittered};
use crate::wire::ScriptCall;

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
    dial: Connector,
    connections: usize,
    current: RwLock<Option<Arc<ConnectionPool>>>,
    alarm: Arc<Notify>,
    client: Mutex<SentinelClient>,
}

impl Sentinel {
    pub(super) async fn open(
        dial: Connector,
        finder: SentinelClient,
        connections: usize,
    ) -> Result<Self, StoreError> {
        let shared = Arc::new(SentinelState {
            dial,
            connections,
            current: RwLock::new(None),
            alarm: Arc::new(Notify::new()),
            client: Mutex::new(finder),
        });
        // Without a reply the store exists anyway, and the task keeps asking.
        let _is_found = shared.update_primary().await;
        let following = Arc::clone(&shared);
        let follower = SupervisedTask::start(move || Arc::clone(&following).watch())?;
        Ok(Self {
            state: shared,
            _watcher: follower,
        })
    }

    pub(super) fn link(&self) -> Option<Arc<ConnectionPool>> {
        self.state.link()
    }

    pub(super) async fn call(
        &self,
        request: &ScriptCall,
        until: Instant,
    ) -> Result<Value, StoreError> {
        let Some(link) = self.state.link() else {
            self.state.alarm.notify_one();
            let detail = "no sentinel has named a primary";
            return Err(StoreError::new(StoreErrorKind::Unreachable, detail));
        };
        let called = link.call(request, CallMode::Plain, until).await;
        called.map_err(|failure| {
            if failure.hint != RoutingHint::None {
                self.state.alarm.notify_one();
            }
            failure.error
        })
    }
}

impl SentinelState {
    fn link(&self) -> Option<Arc<ConnectionPool>> {
        let current = self.current.read();
        current.unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn watch(self: Arc<Self>) {
        loop {
            let _waited = tokio::time::timeout(ASK_EVERY, self.alarm.notified()).await;
            if !self.update_primary().await {
                self.alarm.notify_one();
            }
            tokio::time::sleep(jittered(PAUSE)).await;
        }
    }

    /// Asks for the primary and uses it once it is connected. Returns whether all is well.
    async fn update_primary(&self) -> bool {
        let Some(named) = self.client.lock().await.find().await else {
            return false;
        };
        let current = self.link();
        if let Some(link) = &current
            && *link.endpoint() == named
        {
            return link.is_connected();
        }
        let Ok(link) = ConnectionPool::start(&self.dial, named, self.connections, &self.alarm)
        else {
            return false;
        };
        link.wait_for_first_attempt().await;
        let is_up = link.is_connected();
        // A server that is named before its promotion is not used yet, unless there is no other.
        if is_up || current.is_none() {
            let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
            *current = Some(Arc::new(link));
        }
        is_up
    }
}

/// Queries sentinels, the last one that replied first.
#[derive(Debug)]
pub(super) struct SentinelClient {
    dial: Connector,
    sentinels: Vec<Endpoint>,
    master: String,
    /// The connection to the first sentinel, if there is one.
    connection: Option<MultiplexedConnection>,
}

impl SentinelClient {
    pub(super) const fn new(dial: Connector, sentinels: Vec<Endpoint>, master: String) -> Self {
        Self {
            dial,
            sentinels,
            master,
            connection: None,
        }
    }

    /// The primary that the first replying sentinel names.
    async fn find(&mut self) -> Option<Endpoint> {
        for _ in 0..self.sentinels.len() {
            let first = self.sentinels.first()?.clone();
            let patience = self.dial.deadline().saturating_mul(2);
            let asked = tokio::time::timeout(patience, self.ask(&first)).await;
            if let Ok(Ok(Some(named))) = asked {
                return Some(named);
            }
            self.connection = None;
            self.sentinels.rotate_left(1);
        }
        None
    }

    async fn ask(&mut self, sentinel: &Endpoint) -> RedisResult<Option<Endpoint>> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => {
                let credentials = self.dial.credentials().await?;
                self.dial.connect(sentinel, credentials.as_ref()).await?
            }
        };
        let mut question = redis::cmd("SENTINEL");
        question.arg("GET-MASTER-ADDR-BY-NAME").arg(&self.master);
        let named: Option<(String, u16)> = question.query_async(&mut connection).await?;
        self.connection = Some(connection);
        Ok(named.map(|(host, port)| Endpoint::reported_by(&host, port, sentinel)))
    }
}
