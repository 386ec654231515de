//! A fake server that parses calls and replies as a test says, and a relay that loses replies.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// Replies to script calls with bytes that the test chooses. Ends when dropped.
pub(crate) struct FakeServer {
    pub(crate) address: SocketAddr,
    pub(crate) calls: Arc<AtomicU64>,
    pub(crate) connections: Arc<AtomicU64>,
    _tasks: JoinSet<()>,
}

impl FakeServer {
    /// Sends no reply at all if `answer` is `None`.
    pub(crate) async fn replying(answer: Option<Vec<u8>>) -> Self {
        Self::replying_with(|_| answer).await
    }

    /// The same with a reply that may contain its address.
    pub(crate) async fn replying_with(answer: impl FnOnce(SocketAddr) -> Option<Vec<u8>>) -> Self {
        Self::replying_in_turn(|address| {
            let answer = answer(address);
            move |_| answer.clone()
        })
        .await
    }

    /// The same with a reply that depends on how many calls there were before.
    pub(crate) async fn replying_in_turn<A>(answer: impl FnOnce(SocketAddr) -> A) -> Self
    where
        A: Fn(u64) -> Option<Vec<u8>> + Send + Sync + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let answer = Arc::new(answer(address));
        let (calls, connections) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let mut tasks = JoinSet::new();
        let counted = (Arc::clone(&calls), Arc::clone(&connections));
        tasks.spawn(async move {
            let mut served = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                counted.1.fetch_add(1, Ordering::SeqCst);
                served.spawn(serve(
                    stream,
                    address,
                    Arc::clone(&answer),
                    Arc::clone(&counted.0),
                ));
            }
        });
        Self {
            address,
            calls,
            connections,
            _tasks: tasks,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.address)
    }
}

async fn serve(
    mut stream: TcpStream,
    address: SocketAddr,
    answer: Arc<impl Fn(u64) -> Option<Vec<u8>>>,
    calls: Arc<AtomicU64>,
) {
    let mut read = Vec::new();
    let mut buffer = [0; 65_536];
    loop {
        while let Some((name, word, length)) = first_command(&read) {
            read.drain(..length);
            let reply = match name.as_slice() {
                b"EVALSHA" => {
                    let before = calls.fetch_add(1, Ordering::SeqCst);
                    answer(before).unwrap_or_default()
                }
                // As a cluster node it owns every slot.
                b"CLUSTER" => {
                    let (host, port) = (address.ip().to_string(), address.port());
                    let length = host.len();
                    format!("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n${length}\r\n{host}\r\n:{port}\r\n")
                        .into_bytes()
                }
                b"PING" => [b"+", word.as_slice(), b"\r\n"].concat(),
                _ => b"+OK\r\n".to_vec(),
            };
            if stream.write_all(&reply).await.is_err() {
                return;
            }
        }
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(n) => read.extend_from_slice(&buffer[..n]),
        }
    }
}

/// The name and the last word of the first complete command, and its length in bytes.
fn first_command(bytes: &[u8]) -> Option<(Vec<u8>, Vec<u8>, usize)> {
    let line = |from: usize| {
        let end = bytes
            .get(from..)?
            .windows(2)
            .position(|two| two == b"\r\n")?
            + from;
        let number = std::str::from_utf8(&bytes[from + 1..end]).unwrap();
        Some((number.parse::<usize>().unwrap(), end + 2))
    };
    let (count, mut at) = line(0)?;
    let (mut name, mut last) = (Vec::new(), Vec::new());
    for index in 0..count {
        let (length, start) = line(at)?;
        at = start + length + 2;
        if bytes.len() < at {
            return None;
        }
        last = bytes[start..start + length].to_vec();
        if index == 0 {
            name.clone_from(&last);
        }
    }
    Some((name, last, at))
}

/// Forwards everything to a server, and replies back until it is told to lose them.
pub(crate) struct LossyRelay {
    pub(crate) address: SocketAddr,
    pub(crate) is_losing: Arc<AtomicBool>,
    _tasks: JoinSet<()>,
}

impl LossyRelay {
    /// Loses replies silently, or by closing the connection.
    pub(crate) async fn to(server: SocketAddr, ends: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let is_losing = Arc::new(AtomicBool::new(false));
        let mut tasks = JoinSet::new();
        let losing = Arc::clone(&is_losing);
        tasks.spawn(async move {
            let mut passed = JoinSet::new();
            while let Ok((near, _)) = listener.accept().await {
                let far = TcpStream::connect(server).await.unwrap();
                passed.spawn(pass(near, far, Arc::clone(&losing), ends));
            }
        });
        Self {
            address,
            is_losing,
            _tasks: tasks,
        }
    }
}

async fn pass(near: TcpStream, far: TcpStream, is_losing: Arc<AtomicBool>, ends: bool) {
    let (mut from_near, mut to_near) = near.into_split();
    let (mut from_far, mut to_far) = far.into_split();
    let there = async {
        tokio::io::copy(&mut from_near, &mut to_far)
            .await
            .unwrap_or(0)
    };
    let back = async {
        let mut buffer = [0; 65_536];
        while let Ok(n) = from_far.read(&mut buffer).await {
            let is_lost = is_losing.load(Ordering::SeqCst);
            if n == 0 || (is_lost && ends) {
                break;
            }
            if !is_lost && to_near.write_all(&buffer[..n]).await.is_err() {
                break;
            }
        }
    };
    tokio::select! {
        _ = there => {}
        () = back => {}
    }
}
