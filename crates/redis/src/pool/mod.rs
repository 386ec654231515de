//! A pool of connections to one server, each multiplexed by many calls. A call is sent on a connection that is up, or
//! fails at once. It waits while the server has as many calls as it can answer, never for a connection and is never sent twice.
//!
//! Must not know: what is in a call, how replies are read, which other servers there are.

mod call_window;
mod connector;
mod pooled_connection;
mod supervisor;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, RedisError, RedisResult, Value};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout, timeout_at};
use tollgate_store::{StoreError, StoreErrorKind};

pub(crate) use self::call_window::CallDeadline;
use self::call_window::CallWindow;
pub(crate) use self::connector::Connector;
use self::pooled_connection::PooledConnection;
use self::supervisor::ConnectionSupervisor;
pub(crate) use self::supervisor::MAX_PAUSE;
use crate::address::Endpoint;
use crate::call_failure::{self, CallFailure, RoutingHint};
use crate::connection::PipelinedConnection;
use crate::task::SupervisedTask;
use crate::wire::{ScriptCall, ServerReply};

/// Timers expire up to this much later than asked for.
const TIMER_RESOLUTION: Duration = Duration::from_millis(2);
/// The most time that a call gets in place of time in which this process did not run.
const MAX_GRACE: Duration = Duration::from_millis(10);

/// Whether a call is preceded by `ASKING`: a node that imports a slot serves only such calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallMode {
    Plain,
    Asking,
}

/// The connections to one server.
#[derive(Debug)]
pub(crate) struct ConnectionPool {
    connector: Connector,
    endpoint: Endpoint,
    connections: Vec<Arc<PooledConnection>>,
    window: CallWindow,
    /// Held for its drop, which ends the background tasks.
    _supervisors: Vec<SupervisedTask>,
}

impl ConnectionPool {
    /// Starts connecting in the background.
    pub(crate) fn start(
        connector: &Connector,
        endpoint: Endpoint,
        connections: usize,
        refresh_signal: &Arc<Notify>,
    ) -> Result<Self, StoreError> {
        let pooled: Vec<Arc<PooledConnection>> = (0..connections.max(1))
            .map(|_| Arc::new(PooledConnection::default()))
            .collect();
        let supervisors = pooled
            .iter()
            .map(|connection| {
                let supervisor = ConnectionSupervisor {
                    connection: Arc::clone(connection),
                    connector: connector.clone(),
                    endpoint: endpoint.clone(),
                    refresh_signal: Arc::clone(refresh_signal),
                };
                SupervisedTask::start(move || supervisor.clone().run())
            })
            .collect::<Result<_, _>>()?;
        Ok(Self {
            connector: connector.clone(),
            endpoint,
            connections: pooled,
            window: connector.call_window(),
            _supervisors: supervisors,
        })
    }

    /// Waits until each connection has been tried once: at most the connect deadline.
    pub(crate) async fn wait_for_first_attempt(&self) {
        for connection in &self.connections {
            connection.wait_for_first_attempt().await;
        }
    }

    pub(crate) const fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.connections
            .iter()
            .any(|connection| connection.current().is_some())
    }

    /// The number of calls that wait to be sent.
    pub(crate) fn waiting_calls(&self) -> usize {
        self.window.waiting()
    }

    /// Calls a script, once. The deadline is extended by the time that the call waits to be sent.
    pub(crate) async fn call(
        &self,
        request: &ScriptCall,
        mode: CallMode,
        deadline: &mut CallDeadline,
    ) -> Result<ServerReply, CallFailure> {
        let entered = self.window.enter(deadline).await;
        let permit = entered.map_err(|error| CallFailure::new(error, RoutingHint::None))?;
        let called = self.call_sent(request, mode, deadline.until()).await;
        permit.complete(called.as_ref().err().map(|failure| failure.error.kind()));
        called
    }

    /// Calls a script that may be sent now.
    async fn call_sent(
        &self,
        request: &ScriptCall,
        mode: CallMode,
        until: Instant,
    ) -> Result<ServerReply, CallFailure> {
        let Some((connection, current)) = self.pick() else {
            let error = StoreError::new(StoreErrorKind::Unreachable, "not connected");
            return Err(CallFailure::new(error, RoutingHint::FindServer));
        };
        let mut calling = pin!(evaluate(&current.connection, request, mode));
        if let Ok(called) = timeout_at(until, &mut calling).await {
            return called.map_err(|error| classify(connection, current.generation, &error));
        }
        // A timer that expires late says that this process did not run. The reply may have arrived meanwhile.
        let late = Instant::now().saturating_duration_since(until);
        if late > TIMER_RESOLUTION {
            let grace = Box::pin(timeout(late.min(MAX_GRACE), &mut calling));
            if let Ok(called) = grace.await {
                return called.map_err(|error| classify(connection, current.generation, &error));
            }
        }
        // Reconnecting does not make a slow server faster; the supervisor finds out whether it is gone.
        connection.request_probe();
        let detail = "the call's deadline has passed";
        let error = StoreError::new(StoreErrorKind::TimedOut, detail);
        Err(CallFailure::new(error, RoutingHint::FindServer))
    }

    /// Sends a read-only command. Makes a connection of its own if none is up, because a replica replies too.
    pub(crate) async fn query(&self, command: &Cmd, longest: Duration) -> RedisResult<Value> {
        let querying = async {
            let connection = self
                .connections
                .iter()
                .find_map(|connection| connection.current());
            let connection = match connection {
                Some(current) => current.connection,
                None => {
                    let credentials = self.connector.credentials().await?;
                    self.connector
                        .connect(&self.endpoint, credentials.as_ref())
                        .await?
                }
            };
            connection.query(command).await
        };
        match timeout(longest, querying).await {
            Ok(reply) => reply,
            Err(_elapsed) => Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()),
        }
    }

    /// Discards the connection of the latest calls after an invalid reply: later replies on it cannot be trusted.
    pub(crate) fn discard_connection(&self) {
        if let Some((connection, current)) = self.pick() {
            connection.discard(current.generation);
        }
    }

    /// The first connection that is up. The others stand by: on one connection, calls of one turn share one write, and the
    /// server reads and replies to more of them at once.
    fn pick(&self) -> Option<(&Arc<PooledConnection>, pooled_connection::LiveConnection)> {
        let mut connections = self.connections.iter();
        connections.find_map(|connection| Some((connection, connection.current()?)))
    }
}

/// Classifies the error of a call, and discards its connection if it is broken.
fn classify(connection: &PooledConnection, generation: u64, error: &RedisError) -> CallFailure {
    let failure = call_failure::classify_error(error);
    if failure.is_connection_broken {
        connection.discard(generation);
    }
    failure
}

/// Calls the script by digest. If the server does not know the digest, sends the script and the call again in one more
/// round trip. That is no repetition: a server that does not know a script has not run it.
async fn evaluate(
    connection: &PipelinedConnection,
    request: &ScriptCall,
    mode: CallMode,
) -> RedisResult<ServerReply> {
    if mode == CallMode::Asking {
        return Box::pin(evaluate_after(connection, request, mode, false)).await;
    }
    // In a block, so that the reply is not kept over the next wait.
    {
        let called = connection.call(|bytes| request.write_command(bytes)).await;
        if !matches!(&called, Err(error) if call_failure::is_unknown_script(error)) {
            return called;
        }
    }
    Box::pin(evaluate_after(connection, request, mode, true)).await
}

/// Calls the script after the commands that have to precede it, and loads it if the server does not know it. Its futures are boxed, because calls without such commands
/// are many and theirs should be small.
async fn evaluate_after(
    connection: &PipelinedConnection,
    request: &ScriptCall,
    mode: CallMode,
    is_unknown: bool,
) -> RedisResult<ServerReply> {
    let is_retried = mode == CallMode::Asking && !is_unknown;
    let mut commands = Vec::with_capacity(3);
    if is_unknown {
        // SCRIPT LOAD and not EVAL: newer servers drop scripts that came by EVAL.
        let mut load = redis::cmd("SCRIPT");
        load.arg("LOAD").arg(request.kind.script().text);
        commands.push(load);
    }
    if mode == CallMode::Asking {
        commands.push(redis::cmd("ASKING"));
    }
    commands.push(command(request));
    let called = last_reply(connection, &commands).await;
    match called {
        Err(error) if is_retried && call_failure::is_unknown_script(&error) => {
            Box::pin(evaluate_after(connection, request, mode, true)).await
        }
        other => other,
    }
}

/// Sends several commands without commands of other calls in between, and returns the last reply.
async fn last_reply(
    connection: &PipelinedConnection,
    commands: &[Cmd],
) -> RedisResult<ServerReply> {
    let replies = connection.pipeline(commands).await?;
    match replies.into_iter().last() {
        Some(last) => last.map(ServerReply::Other),
        None => Err(std::io::Error::other("there was no reply").into()),
    }
}

/// The call as a command of the client library.
fn command(request: &ScriptCall) -> Cmd {
    let mut call = redis::cmd("EVALSHA");
    call.arg(&request.kind.script().digest)
        .arg(request.keys.len());
    for argument in request.keys.iter().chain(&request.args) {
        call.arg(argument);
    }
    call
}
