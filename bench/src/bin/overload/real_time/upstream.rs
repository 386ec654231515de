//! An upstream with a number of workers and an unbounded queue in order of arrival.
//!
//! A worker has a request for the service time, whatever becomes of its client. Must not know: who asks.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::http1::read_message;

const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// A running upstream. Its listener ends with the runtime.
pub(super) struct Upstream {
    address: SocketAddr,
    shared: Arc<Shared>,
    /// Accepts connections until the upstream is dropped.
    _accepts: JoinSet<()>,
}

struct Shared {
    workers: Semaphore,
    service_nanos: AtomicU64,
}

impl Upstream {
    pub(super) async fn start(workers: u32) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let workers = usize::try_from(workers).map_err(io::Error::other)?;
        let shared = Arc::new(Shared {
            workers: Semaphore::new(workers),
            service_nanos: AtomicU64::new(0),
        });
        let for_connections = Arc::clone(&shared);
        let mut accepts = JoinSet::new();
        accepts.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                while connections.try_join_next().is_some() {}
                connections.spawn(serve(stream, Arc::clone(&for_connections)));
            }
        });
        Ok(Self {
            address,
            shared,
            _accepts: accepts,
        })
    }

    pub(super) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sets the service time of requests that a worker takes from now on.
    pub(super) fn set_service(&self, service: Duration) {
        let nanos = u64::try_from(service.as_nanos()).unwrap_or(u64::MAX);
        self.shared.service_nanos.store(nanos, Ordering::Relaxed);
    }
}

async fn serve(stream: TcpStream, shared: Arc<Shared>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut stream = BufReader::new(stream);
    while let Some((_, closes)) = read_message(&mut stream).await? {
        let worker = shared.workers.acquire().await.map_err(io::Error::other)?;
        let nanos = shared.service_nanos.load(Ordering::Relaxed);
        tokio::time::sleep(Duration::from_nanos(nanos)).await;
        drop(worker);
        stream.write_all(RESPONSE).await?;
        if closes {
            break;
        }
    }
    Ok(())
}
