//! The RESP server: fed with bytes where that suffices, over sockets where connections matter, and with real clients.

mod allocation;
mod any_bytes;
mod checks;
mod clients;
mod connections;
mod golden_replies;
mod golden_throttle;
mod hostile_clients;
mod random_traces;
mod split_packets;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tollgate_core::Timestamp;
use tollgate_server::listen::DrainOutcome;
use tollgate_server::resp::{NextAction, Pipeline, RespLimits, RespServer, RespSession};
use tollgate_store::{Clock, ManualClock, MemoryStore};

use crate::harness::ready_now;
use crate::running_server::RunningServer;

const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);

/// Far above any duration here; only a hang reaches it.
const DEADLINE: Duration = Duration::from_secs(30);

type Manual = Arc<ManualClock>;

/// A server with a manual clock.
fn server() -> (RespServer<Manual>, Manual) {
    let clock = Arc::new(ManualClock::at(NOW));
    let store = MemoryStore::with_clock(1_000, Arc::clone(&clock)).unwrap();
    (RespServer::new(store).unwrap(), clock)
}

/// One connection without a socket.
struct InMemoryClient<'a, C> {
    server: &'a RespServer<C>,
    session: RespSession,
    pipeline: Pipeline<'a>,
    pending: Vec<u8>,
    is_closed: bool,
}

impl<'a, C: Clock> InMemoryClient<'a, C> {
    fn new(server: &'a RespServer<C>) -> Self {
        Self {
            session: server.session(None),
            server,
            pipeline: Pipeline::new(),
            pending: Vec::new(),
            is_closed: false,
        }
    }

    /// Sends bytes and returns the replies.
    fn send(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut answers = Vec::new();
        self.pending.extend_from_slice(bytes);
        while !self.is_closed {
            let mut out = Vec::new();
            let (session, pipeline) = (&mut self.session, &mut self.pipeline);
            let fed = self
                .server
                .feed(session, &mut self.pending, pipeline, &mut out);
            if fed.next == NextAction::Drain {
                ready_now(self.server.drain(session, pipeline, &mut out));
            }
            self.pending.drain(..fed.consumed);
            answers.append(&mut out);
            match fed.next {
                NextAction::Read => break,
                NextAction::FeedAgain | NextAction::Drain => {}
                NextAction::Close => self.is_closed = true,
            }
        }
        answers
    }

    /// Sends one command and returns the reply as text.
    fn command(&mut self, words: &[&str]) -> String {
        String::from_utf8(self.send(&command(words))).unwrap()
    }

    /// The same, with the command as a line.
    fn line(&mut self, line: &str) -> String {
        let words: Vec<&str> = line.split_whitespace().collect();
        self.command(&words)
    }

    /// Sends a throttle command and returns the five numbers of its reply.
    fn numbers(&mut self, line: &str) -> [i64; 5] {
        let answer = self.line(line);
        let rest = answer
            .strip_prefix("*5\r\n:")
            .unwrap_or_else(|| panic!("{line}: {answer}"));
        let numbers: Vec<i64> = rest
            .trim_end()
            .split("\r\n:")
            .map(|number| number.parse().unwrap())
            .collect();
        numbers.try_into().unwrap()
    }
}

/// A command as an array of bulk strings.
fn command(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len());
    for word in words {
        bytes += &format!("${}\r\n{word}\r\n", word.len());
    }
    bytes.into_bytes()
}

/// A server that listens.
struct TestRespServer<C> {
    address: SocketAddr,
    server: Arc<RespServer<C>>,
    running: RunningServer,
}

async fn listen<C: Clock + 'static>(
    server: RespServer<C>,
    limits: RespLimits,
) -> TestRespServer<C> {
    let server = Arc::new(server);
    let serving = Arc::clone(&server);
    let running =
        RunningServer::start(|listener, shutdown| serving.run(listener, limits, shutdown)).await;
    TestRespServer {
        address: running.address,
        server,
        running,
    }
}

impl<C> TestRespServer<C> {
    async fn connect(&self) -> SocketClient {
        SocketClient(TcpStream::connect(self.address).await.unwrap())
    }

    async fn stop(self) -> DrainOutcome {
        self.running.stop().await
    }
}

struct SocketClient(TcpStream);

impl SocketClient {
    async fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).await.unwrap();
    }

    /// Waits for exactly this reply.
    async fn expect(&mut self, answer: &str) {
        let mut bytes = vec![0; answer.len()];
        let read = timeout(DEADLINE, self.0.read_exact(&mut bytes)).await;
        read.expect("an answer before the deadline").unwrap();
        assert_eq!(String::from_utf8_lossy(&bytes), answer);
    }

    async fn pong(&mut self) {
        self.send(b"PING\r\n").await;
        self.expect("+PONG\r\n").await;
    }

    /// Everything until the server closes the connection, by FIN or RST.
    async fn read_until_closed(&mut self) -> String {
        let mut rest = Vec::new();
        match timeout(DEADLINE, self.0.read_to_end(&mut rest)).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
            Err(_) => panic!("the connection is still open"),
        }
        String::from_utf8(rest).unwrap()
    }
}
