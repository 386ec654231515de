//! Several connections to one server, each shared by many calls. A call either goes out at once on a connection that is
//! up or fails at once; it never waits for a connection to be made, and never goes out twice.
//!
//! Must not know: what is in a call, how replies are read, which other servers there are.

mod dial;
mod lane;
mod tend;

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisResult, Value};
use tokio::sync::Notify;
use tokio::time::Instant;
use tollgate_store::{ErrorKind, StoreError};

pub(crate) use self::dial::Dial;
use self::lane::Lane;
use self::tend::Tender;
use crate::address::Endpoint;
use crate::failure::{self, Failure, Trouble};
use crate::script::Script;
use crate::task::Task;
use crate::wire::ScriptCall;

/// Whether a call is announced: a node that is taking a slot over answers only calls that are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    Plain,
    Asking,
}

/// The way to one server.
#[derive(Debug)]
pub(crate) struct Link {
    dial: Dial,
    endpoint: Endpoint,
    lanes: Vec<Arc<Lane>>,
    /// Held for its drop, which ends the background tasks.
    _tenders: Vec<Task>,
}

impl Link {
    /// Starts connecting.
    pub(crate) fn start(
        dial: &Dial,
        endpoint: Endpoint,
        connections: usize,
        alarm: &Arc<Notify>,
    ) -> Result<Self, StoreError> {
        let lanes: Vec<Arc<Lane>> = (0..connections.max(1))
            .map(|_| Arc::new(Lane::default()))
            .collect();
        let tenders = lanes
            .iter()
            .map(|lane| {
                let tender = Tender {
                    lane: Arc::clone(lane),
                    dial: dial.clone(),
                    endpoint: endpoint.clone(),
                    alarm: Arc::clone(alarm),
                };
                Task::start(move || tender.clone().tend())
            })
            .collect::<Result<_, _>>()?;
        Ok(Self {
            dial: dial.clone(),
            endpoint,
            lanes,
            _tenders: tenders,
        })
    }

    /// Waits until each connection has been tried once: at most the connection's deadline.
    pub(crate) async fn wait_for_first_attempt(&self) {
        for lane in &self.lanes {
            lane.wait_for_first_attempt().await;
        }
    }

    pub(crate) const fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.lanes.iter().any(|lane| lane.current().is_some())
    }

    /// Calls a script, once.
    pub(crate) async fn call(
        &self,
        request: &ScriptCall,
        how: How,
        until: Instant,
    ) -> Result<Value, Failure> {
        let Some((lane, mut current)) = self.pick(request) else {
            let error = StoreError::new(ErrorKind::Unreachable, "no connection is up");
            return Err(Failure::of(error, Trouble::Gone));
        };
        let calling = evaluate(&mut current.connection, request, how);
        match tokio::time::timeout_at(until, calling).await {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(error)) => {
                let failure = failure::of_call(&error);
                if failure.is_connection_spent {
                    lane.give_up(current.generation);
                }
                Err(failure)
            }
            Err(_elapsed) => {
                // A slow server is not made faster by connecting again; the tender finds out whether it is gone.
                lane.doubt();
                let detail = "the deadline of the call has passed";
                let error = StoreError::new(ErrorKind::TimedOut, detail);
                Err(Failure::of(error, Trouble::Gone))
            }
        }
    }

    /// Asks the server something that changes nothing, on a connection of its own while none is up: a replica answers too.
    pub(crate) async fn ask(&self, question: &Cmd, within: Duration) -> RedisResult<Value> {
        let asking = async {
            let lane = self.lanes.iter().find_map(|lane| lane.current());
            let mut connection = match lane {
                Some(current) => current.connection,
                None => {
                    let credentials = self.dial.credentials().await?;
                    self.dial
                        .connect(&self.endpoint, credentials.as_ref())
                        .await?
                }
            };
            question.query_async(&mut connection).await
        };
        match tokio::time::timeout(within, asking).await {
            Ok(reply) => reply,
            Err(_elapsed) => Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()),
        }
    }

    /// After a reply that made no sense: whatever else comes on that connection is not to be trusted.
    pub(crate) fn distrust(&self, request: &ScriptCall) {
        if let Some((lane, current)) = self.pick(request) {
            lane.give_up(current.generation);
        }
    }

    /// The key's own connection, or while that is down the next one that is up.
    fn pick(&self, request: &ScriptCall) -> Option<(&Arc<Lane>, lane::Current)> {
        let first = request.place(self.lanes.len());
        let (before, from) = self.lanes.split_at_checked(first)?;
        from.iter()
            .chain(before)
            .find_map(|lane| Some((lane, lane.current()?)))
    }
}

/// By digest; if the server does not know it, the script goes along, in the same decision and one more round trip. That
/// is no repetition: a server that does not know a script has not run it.
async fn evaluate(
    connection: &mut MultiplexedConnection,
    request: &ScriptCall,
    how: How,
) -> RedisResult<Value> {
    let script = request.which.script();
    let call = command(script, request);
    let first = match how {
        // Not by way of the trait that all connections have, which puts every call into a box.
        How::Plain => connection
            .send_packed_command(&call)
            .await
            .and_then(Value::extract_error),
        How::Asking => together(connection, [redis::cmd("ASKING"), call.clone()]).await,
    };
    match first {
        Err(error) if failure::is_unknown_script(&error) => {
            // Loaded and not only evaluated: newer servers forget scripts that came by EVAL.
            let mut load = redis::cmd("SCRIPT");
            load.arg("LOAD").arg(script.text);
            match how {
                How::Plain => together(connection, [load, call]).await,
                How::Asking => together(connection, [load, redis::cmd("ASKING"), call]).await,
            }
        }
        other => other,
    }
}

/// Several commands of which nobody else's come between, and the reply to the last.
async fn together<const N: usize>(
    connection: &mut MultiplexedConnection,
    commands: [Cmd; N],
) -> RedisResult<Value> {
    let mut all = redis::pipe();
    for command in commands {
        all.add_command(command);
    }
    // Otherwise an error would be told as one of the whole, without its code.
    all.ignore_errors();
    let replies: Vec<RedisResult<Value>> = all.query_async(connection).await?;
    match replies.into_iter().last() {
        Some(last) => last,
        None => Err(std::io::Error::other("there was no reply").into()),
    }
}

/// The call, in room that is made once.
fn command(script: &Script, request: &ScriptCall) -> Cmd {
    let ScriptCall { keys, args, .. } = request;
    let words = keys.len().saturating_add(args.len()).saturating_add(3);
    let bytes = keys.size().saturating_add(args.size()).saturating_add(64);
    let mut call = Cmd::with_capacity(words, bytes);
    call.arg("EVALSHA").arg(&script.digest).arg(keys.len());
    for word in keys.iter().chain(args) {
        call.arg(word);
    }
    call
}
