//! Several connections to one server, each shared by many calls. A call either goes out at once on a connection that is
//! up or fails at once; it never waits for a connection to be made, and never goes out twice.
//!
//! Must not know: what is in a call, how replies are read.

mod lane;
mod tend;

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, IntoConnectionInfo as _, ProtocolVersion, Value};
use tokio::sync::Semaphore;
use tollgate_store::{ErrorKind, StoreError};

use self::lane::Lane;
use self::tend::Tenders;
use crate::failure;
use crate::options::Options;
use crate::script::Script;
use crate::wire::Request;

/// How long a connection may be silent before the system asks whether the other side is still there.
const KEEPALIVE: Duration = Duration::from_secs(5);
/// How long written data may stay unacknowledged: a peer that vanished without a word is noticed by this.
#[cfg(target_os = "linux")]
const USER_TIMEOUT: Duration = Duration::from_secs(2);

/// The way to one server.
#[derive(Debug)]
pub(crate) struct Link {
    lanes: Vec<Arc<Lane>>,
    in_flight: Semaphore,
    deadline: Duration,
    /// Held for its drop, which ends the background tasks.
    _tenders: Tenders,
}

impl Link {
    /// Starts connecting, and waits at most the connection's deadline for the first connections to be up.
    pub(crate) async fn open(options: &Options) -> Result<Self, StoreError> {
        let client = client(&options.address)?;
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(options.connect_deadline))
            // Calls have a deadline of their own, over everything that happens to them.
            .set_response_timeout(None)
            .set_pipeline_buffer_size(options.most_in_flight.max(1));
        let lanes: Vec<Arc<Lane>> = (0..options.connections.max(1))
            .map(|_| Arc::new(Lane::default()))
            .collect();
        let tenders = Tenders::start(&lanes, &client, &config, options.connect_deadline)?;
        for lane in &lanes {
            lane.wait_for_first_attempt().await;
        }
        Ok(Self {
            lanes,
            in_flight: Semaphore::new(options.most_in_flight.max(1)),
            deadline: options.deadline,
            _tenders: tenders,
        })
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.lanes.iter().any(|lane| lane.current().is_some())
    }

    /// Calls a script, once.
    pub(crate) async fn call(&self, request: &Request) -> Result<Value, StoreError> {
        let Ok(_permit) = self.in_flight.try_acquire() else {
            return Err(StoreError::new(
                ErrorKind::Busy,
                "the most calls in flight are reached",
            ));
        };
        let Some((lane, mut current)) = self.pick(request) else {
            return Err(StoreError::new(
                ErrorKind::Unreachable,
                "no connection is up",
            ));
        };
        let called =
            tokio::time::timeout(self.deadline, evaluate(&mut current.connection, request));
        match called.await {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(error)) => {
                let failure = failure::of_call(&error);
                if failure.is_connection_spent {
                    lane.give_up(current.generation);
                }
                Err(failure.error)
            }
            Err(_elapsed) => {
                // A slow server is not made faster by connecting again; the tender finds out whether it is gone.
                lane.doubt();
                Err(StoreError::new(
                    ErrorKind::TimedOut,
                    "the deadline of the call has passed",
                ))
            }
        }
    }

    /// After a reply that made no sense: whatever else comes on that connection is not to be trusted.
    pub(crate) fn distrust(&self, request: &Request) {
        if let Some((lane, current)) = self.pick(request) {
            lane.give_up(current.generation);
        }
    }

    /// The key's own connection, or while that is down the next one that is up.
    fn pick(&self, request: &Request) -> Option<(&Arc<Lane>, lane::Current)> {
        let first = request.place(self.lanes.len());
        let (before, from) = self.lanes.split_at_checked(first)?;
        from.iter()
            .chain(before)
            .find_map(|lane| Some((lane, lane.current()?)))
    }
}

fn client(address: &str) -> Result<Client, StoreError> {
    let invalid = |_: redis::RedisError| {
        // The error may quote the address, and the address may hold a password.
        StoreError::new(ErrorKind::BadRequest, "the server's address is not valid")
    };
    let info = address.into_connection_info().map_err(invalid)?;
    let tcp = redis::io::tcp::TcpSettings::default()
        // Without it, under many calls, each write would wait for the last one's acknowledgement.
        .set_nodelay(true)
        .set_keepalive(redis::io::tcp::socket2::TcpKeepalive::new().with_time(KEEPALIVE));
    #[cfg(target_os = "linux")]
    let tcp = tcp.set_user_timeout(USER_TIMEOUT);
    let settings = info
        .redis_settings()
        .clone()
        .set_protocol(ProtocolVersion::RESP2)
        .set_skip_set_lib_name();
    Client::open(info.set_tcp_settings(tcp).set_redis_settings(settings)).map_err(invalid)
}

/// By digest; if the server does not know it, the script goes along, in the same decision and one more round trip. That
/// is no repetition: a server that does not know a script has not run it.
async fn evaluate(
    connection: &mut MultiplexedConnection,
    request: &Request,
) -> Result<Value, redis::RedisError> {
    let script = request.which.script();
    let call = command(script, request);
    match call.query_async(connection).await {
        Err(error) if failure::is_unknown_script(&error) => {
            // Loaded and not only evaluated: newer servers forget scripts that came by EVAL.
            let mut both = redis::pipe();
            both.cmd("SCRIPT").arg("LOAD").arg(script.text).ignore();
            both.add_command(call);
            let (reply,): (Value,) = both.query_async(connection).await?;
            Ok(reply)
        }
        other => other,
    }
}

fn command(script: &Script, request: &Request) -> redis::Cmd {
    let mut call = redis::cmd("EVALSHA");
    call.arg(&script.digest).arg(request.keys.len());
    for bytes in request.keys.iter().chain(&request.args) {
        call.arg(bytes.as_slice());
    }
    call
}
