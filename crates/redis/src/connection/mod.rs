//! One connection to a server that many callers share: their calls are pipelined.
//!
//! The client library's own multiplexed connection does the same with a channel, an allocation and a tree of values for
//! each call, which cost more than the decision (ADR 0059). Must not know: which server it is, what is in a call.

mod call_queue;
mod driver;
mod stream;

use std::future::poll_fn;
use std::sync::{Arc, Mutex};

use redis::{Cmd, RedisResult, Value};
use tokio::io::{AsyncRead, AsyncWrite};

use self::call_queue::{CallQueue, CallSlot, ConnectionFailure};
use self::driver::{ConnectionDriver, lock};
pub(crate) use self::stream::ServerStream;
use crate::task::OwnedTask;
use crate::wire::ServerReply;

/// A handle to a connection. The connection ends with its last handle.
#[derive(Clone, Debug)]
pub(crate) struct PipelinedConnection(Arc<ConnectionInner>);

#[derive(Debug)]
struct ConnectionInner {
    calls: Arc<Mutex<CallQueue>>,
    /// Held for its drop, which ends the task.
    _driver: OwnedTask,
}

impl PipelinedConnection {
    /// Starts the connection's task. At most `max_awaited` replies are awaited at a time.
    pub(crate) fn start<S>(stream: S, max_awaited: usize) -> Self
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let calls = Arc::new(Mutex::new(CallQueue::new(max_awaited)));
        let driver = ConnectionDriver::new(stream, Arc::clone(&calls));
        Self(Arc::new(ConnectionInner {
            calls,
            _driver: OwnedTask::start(driver.run()),
        }))
    }

    /// Sends a command that `write` encodes and waits for its reply. Dropping the future does not recall the command.
    pub(crate) async fn call(&self, write: impl FnOnce(&mut Vec<u8>)) -> RedisResult<ServerReply> {
        let reply = self.send(write)?.reply().await?;
        match reply {
            ServerReply::Integers(_) => Ok(reply),
            ServerReply::Other(value) => value.extract_error().map(ServerReply::Other),
        }
    }

    /// Sends a command and waits for its reply.
    pub(crate) async fn query(&self, command: &Cmd) -> RedisResult<Value> {
        let reply = self.call(|bytes| command.write_packed_command(bytes)).await;
        reply.map(ServerReply::into_value)
    }

    /// Sends several commands without commands of other callers in between, and returns their replies.
    pub(crate) async fn pipeline(&self, commands: &[Cmd]) -> RedisResult<Vec<RedisResult<Value>>> {
        let mut pending = Vec::with_capacity(commands.len());
        let mut pushed = Ok(());
        {
            let mut calls = lock(&self.0.calls);
            for command in commands {
                match calls.push(|bytes| command.write_packed_command(bytes)) {
                    Ok(slot) => pending.push(PendingReply::new(self, slot)),
                    Err(failure) => {
                        pushed = Err(failure);
                        break;
                    }
                }
            }
        }
        // Only now, because the drop of a pending reply takes the lock.
        pushed?;
        let mut replies = Vec::with_capacity(commands.len());
        for pending in pending {
            let reply = pending.reply().await?;
            replies.push(reply.into_value().extract_error());
        }
        Ok(replies)
    }

    fn send(
        &self,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Result<PendingReply<'_>, ConnectionFailure> {
        let slot = lock(&self.0.calls).push(write)?;
        Ok(PendingReply::new(self, slot))
    }
}

/// A reply that has not been taken yet.
struct PendingReply<'a> {
    connection: &'a PipelinedConnection,
    slot: Option<CallSlot>,
}

impl<'a> PendingReply<'a> {
    const fn new(connection: &'a PipelinedConnection, slot: CallSlot) -> Self {
        Self {
            connection,
            slot: Some(slot),
        }
    }

    async fn reply(mut self) -> Result<ServerReply, ConnectionFailure> {
        poll_fn(|context| {
            let Some(slot) = self.slot else {
                return std::task::Poll::Ready(Err(ConnectionFailure::InvalidReply));
            };
            let reply = lock(&self.connection.0.calls).poll_reply(slot, context);
            if reply.is_ready() {
                self.slot = None;
            }
            reply
        })
        .await
    }
}

impl Drop for PendingReply<'_> {
    fn drop(&mut self) {
        if let Some(slot) = self.slot {
            lock(&self.connection.0.calls).abandon(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use redis::Value;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
    use tokio::task::JoinSet;

    use super::*;

    /// A connection and its peer.
    fn connect() -> (PipelinedConnection, DuplexStream) {
        let (ours, peer) = tokio::io::duplex(4_096);
        (PipelinedConnection::start(ours, 8), peer)
    }

    /// A call that runs while the test plays the peer.
    struct Running<T>(JoinSet<T>);

    impl<T: Send + 'static> Running<T> {
        fn start(call: impl Future<Output = T> + Send + 'static) -> Self {
            let mut calls = JoinSet::new();
            calls.spawn(call);
            Self(calls)
        }

        async fn end(mut self) -> T {
            self.0.join_next().await.unwrap().unwrap()
        }
    }

    async fn read(peer: &mut DuplexStream) -> Vec<u8> {
        let mut bytes = vec![0; 4_096];
        let len = peer.read(&mut bytes).await.unwrap();
        bytes.truncate(len);
        bytes
    }

    /// Each call was a write of its own, and each reply a wake-up of its own.
    #[tokio::test]
    async fn calls_of_one_turn_go_out_in_one_write() {
        let (connection, mut peer) = connect();
        let call = |name: &'static [u8]| {
            let connection = connection.clone();
            async move { connection.call(|bytes| bytes.extend_from_slice(name)).await }
        };
        let mut calls = JoinSet::new();
        for name in [b"a", b"b", b"c"] {
            calls.spawn(call(name));
        }
        assert_eq!(read(&mut peer).await, b"abc", "one write");
        peer.write_all(b"*1\r\n:1\r\n*1\r\n:2\r\n*1\r\n:3\r\n")
            .await
            .unwrap();
        let mut replies: Vec<Value> = calls
            .join_all()
            .await
            .into_iter()
            .map(|reply| reply.unwrap().into_value())
            .collect();
        replies.sort_by_key(|reply| format!("{reply:?}"));
        let number = |n| Value::Array(vec![Value::Int(n)]);
        assert_eq!(replies, [number(1), number(2), number(3)]);
    }

    #[tokio::test]
    async fn a_reply_to_a_caller_who_is_gone_reaches_nobody_else() {
        let (connection, mut peer) = connect();
        {
            let gone = connection.call(|bytes| bytes.push(b'a'));
            let mut gone = std::pin::pin!(gone);
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            assert!(gone.as_mut().poll(&mut context).is_pending());
        }
        assert_eq!(read(&mut peer).await, b"a");
        let query = connection.clone();
        let next = Running::start(async move { query.query(&redis::cmd("PING")).await });
        assert_eq!(read(&mut peer).await, b"*1\r\n$4\r\nPING\r\n");
        peer.write_all(b"+first\r\n+second\r\n").await.unwrap();
        let reply = next.end().await.unwrap();
        assert_eq!(reply, Value::SimpleString("second".to_owned()));
    }

    #[tokio::test]
    async fn commands_of_a_pipeline_stay_together_and_errors_have_their_codes() {
        let (connection, mut peer) = connect();
        let asking = connection.clone();
        let pipeline = Running::start(async move {
            let commands = [redis::cmd("ASKING"), redis::cmd("PING")];
            asking.pipeline(&commands).await
        });
        let sent = read(&mut peer).await;
        assert_eq!(sent, b"*1\r\n$6\r\nASKING\r\n*1\r\n$4\r\nPING\r\n");
        peer.write_all(b"+OK\r\n-MOVED 3 h:1\r\n").await.unwrap();
        let replies = pipeline.end().await.unwrap();
        let codes: Vec<Option<&str>> = replies
            .iter()
            .map(|reply| reply.as_ref().err().and_then(redis::RedisError::code))
            .collect();
        assert_eq!(codes, [None, Some("MOVED")]);
        let full = vec![redis::cmd("PING"); 9];
        let refused = connection.pipeline(&full).await.unwrap_err();
        assert_eq!(refused.kind(), redis::ErrorKind::Client);
    }

    #[tokio::test]
    async fn invalid_bytes_and_an_end_fail_every_call() {
        for (bytes, expected) in [
            (&b"HTTP/1.1 400\r\n"[..], redis::ErrorKind::Parse),
            (b"", redis::ErrorKind::Io),
        ] {
            let (connection, mut peer) = connect();
            let asking = connection.clone();
            let call = Running::start(async move { asking.call(|bytes| bytes.push(b'a')).await });
            assert_eq!(read(&mut peer).await, b"a");
            peer.write_all(bytes).await.unwrap();
            drop(peer);
            let error = call.end().await.unwrap_err();
            assert_eq!(error.kind(), expected);
            let later = connection.call(|bytes| bytes.push(b'b')).await.unwrap_err();
            assert_eq!(later.kind(), expected);
        }
    }

    /// A reply that nobody asked for would be taken for the reply to the next call.
    #[tokio::test]
    async fn a_reply_without_a_call_ends_the_connection() {
        let (connection, mut peer) = connect();
        peer.write_all(b"+OK\r\n").await.unwrap();
        assert_eq!(peer.read(&mut [0; 1]).await.unwrap(), 0, "it was closed");
        let error = connection.query(&redis::cmd("PING")).await.unwrap_err();
        assert_eq!(error.kind(), redis::ErrorKind::Parse);
    }

    /// A peer that writes more than fits while it is written to must not stop both.
    #[tokio::test]
    async fn replies_are_read_while_a_write_is_stuck() {
        let (ours, mut peer) = tokio::io::duplex(64);
        let connection = PipelinedConnection::start(ours, 8);
        let call = |len: usize| {
            let connection = connection.clone();
            async move { connection.call(|bytes| bytes.resize(len, b'x')).await }
        };
        let first = Running::start(call(1));
        assert_eq!(read(&mut peer).await, b"x");
        let second = Running::start(call(1_000));
        let long = format!("${}\r\n{}\r\n", 500, "y".repeat(500));
        // The peer reads nothing until it has written everything.
        peer.write_all(long.as_bytes()).await.unwrap();
        let reply = first.end().await.unwrap().into_value();
        assert_eq!(reply, Value::BulkString(vec![b'y'; 500]));
        let mut rest = vec![0; 1_000];
        peer.read_exact(&mut rest).await.unwrap();
        peer.write_all(b"*0\r\n").await.unwrap();
        assert!(second.end().await.is_ok());
    }
}
