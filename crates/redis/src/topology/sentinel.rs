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
use tollgate_store::{ErrorKind, StoreError};

use crate::address::Endpoint;
use crate::failure::Trouble;
use crate::link::{Dial, How, Link};
use crate::task::{Task, jittered};
use crate::wire::ScriptCall;

/// How often the sentinels are asked when all is well: a primary that was cut off with us is left by then.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// The most that is waited between two questions while something is wrong.
const PAUSE: Duration = Duration::from_millis(100);

/// The server of the moment, and the task that finds the next.
#[derive(Debug)]
pub(crate) struct Sentinel {
    shared: Arc<Shared>,
    _follower: Task,
}

#[derive(Debug)]
struct Shared {
    dial: Dial,
    connections: usize,
    current: RwLock<Option<Arc<Link>>>,
    alarm: Arc<Notify>,
    finder: Mutex<Finder>,
}

impl Sentinel {
    pub(super) async fn open(
        dial: Dial,
        finder: Finder,
        connections: usize,
    ) -> Result<Self, StoreError> {
        let shared = Arc::new(Shared {
            dial,
            connections,
            current: RwLock::new(None),
            alarm: Arc::new(Notify::new()),
            finder: Mutex::new(finder),
        });
        // Without an answer the store exists all the same, and the task goes on asking.
        let _is_found = shared.follow().await;
        let following = Arc::clone(&shared);
        let follower = Task::start(move || Arc::clone(&following).keep_following())?;
        Ok(Self {
            shared,
            _follower: follower,
        })
    }

    pub(super) fn link(&self) -> Option<Arc<Link>> {
        self.shared.link()
    }

    pub(super) async fn call(
        &self,
        request: &ScriptCall,
        until: Instant,
    ) -> Result<Value, StoreError> {
        let Some(link) = self.shared.link() else {
            self.shared.alarm.notify_one();
            let detail = "no sentinel has named a server";
            return Err(StoreError::new(ErrorKind::Unreachable, detail));
        };
        let called = link.call(request, How::Plain, until).await;
        called.map_err(|failure| {
            if failure.trouble != Trouble::None {
                self.shared.alarm.notify_one();
            }
            failure.error
        })
    }
}

impl Shared {
    fn link(&self) -> Option<Arc<Link>> {
        let current = self.current.read();
        current.unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn keep_following(self: Arc<Self>) {
        loop {
            let _waited = tokio::time::timeout(ASK_EVERY, self.alarm.notified()).await;
            if !self.follow().await {
                self.alarm.notify_one();
            }
            tokio::time::sleep(jittered(PAUSE)).await;
        }
    }

    /// Asks who the primary is, and uses it as soon as it can be used. Whether all is well.
    async fn follow(&self) -> bool {
        let Some(named) = self.finder.lock().await.find().await else {
            return false;
        };
        let current = self.link();
        if let Some(link) = &current
            && *link.endpoint() == named
        {
            return link.is_connected();
        }
        let Ok(link) = Link::start(&self.dial, named, self.connections, &self.alarm) else {
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
pub(super) struct Finder {
    dial: Dial,
    sentinels: Vec<Endpoint>,
    master: String,
    /// The connection to the first, while there is one.
    connection: Option<MultiplexedConnection>,
}

impl Finder {
    pub(super) const fn new(dial: Dial, sentinels: Vec<Endpoint>, master: String) -> Self {
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
        Ok(named.map(|(host, port)| Endpoint::at(&host, port, sentinel)))
    }
}
