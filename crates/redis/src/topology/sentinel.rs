//! The server that sentinels name. They are asked in the background, once a second and whenever the server seems to be
//! gone or says that it only follows; callers never wait for them.
//!
//! A server that is named is used only once it says itself that it is a primary: the link refuses replicas. Must not
//! know: keys.

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

/// How often the sentinels are asked when all is well: a primary that was cut off with us is left by then.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// The most that is waited between two questions while something is wrong.
const PAUSE: Duration = Duration::from_millis(100);

/// The server of the moment, and the task that finds the next.
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
        // Without an answer the store exists all the same, and the task goes on asking.
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
            let detail = "no sentinel has named a server";
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

    /// Asks who the primary is, and uses it as soon as it can be used. Whether all is well.
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
        // One that is named before it has been promoted is not used yet, unless there is no other.
        if is_up || current.is_none() {
            let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
            *current = Some(Arc::new(link));
        }
        is_up
    }
}

/// Asks sentinels, the one that answered last first.
#[derive(Debug)]
pub(super) struct SentinelClient {
    dial: Connector,
    sentinels: Vec<Endpoint>,
    master: String,
    /// The connection to the first, while there is one.
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

    /// Whom the first sentinel names that answers.
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
