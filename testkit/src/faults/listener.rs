//! The proxy's thread: it listens while its door is open, and looks after every connection.
//!
//! Must not know: what happens to bytes.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::connection;
use super::proxy_state::{ProxyState, Settings};
use super::toxics::AcceptMode;

/// How long to wait before a port is tried again that somebody may be about to leave.
const PAUSE: Duration = Duration::from_millis(10);

/// Begins to listen on a free port.
pub(super) fn start(shared: &Arc<ProxyState>) -> io::Result<(SocketAddr, JoinHandle<()>)> {
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let shared = Arc::clone(shared);
    let thread = std::thread::Builder::new()
        .name("fault proxy".to_owned())
        .spawn(move || {
            runtime.block_on(async {
                match TcpListener::from_std(listener) {
                    Ok(listener) => serve(listener, address, shared).await,
                    Err(error) => eprintln!("the proxy at {address} cannot listen: {error}"),
                }
            });
        })?;
    Ok((address, thread))
}

async fn serve(listener: TcpListener, address: SocketAddr, shared: Arc<ProxyState>) {
    let began = Instant::now();
    let mut settings = shared.settings.subscribe();
    let mut listener = Some(listener);
    let mut connections = JoinSet::new();
    let mut numbers = 0_u64..;
    loop {
        let now = *settings.borrow_and_update();
        if now.is_over {
            return;
        }
        match now.toxics.door {
            AcceptMode::Closed => listener = None,
            AcceptMode::Open | AcceptMode::Reset if listener.is_none() => {
                listener = reopened(address, &mut settings).await;
                continue;
            }
            AcceptMode::Open | AcceptMode::Reset => {}
        }
        shared.note(|happened| happened.door = now.toxics.door);
        tokio::select! {
            changed = settings.changed() => if changed.is_err() {
                return;
            },
            // A connection that panicked is a mistake of the proxy's, and would look like a fault that nobody asked for.
            Some(ended) = connections.join_next() => if let Err(error) = ended {
                eprintln!("the proxy at {address}: {error}");
            },
            near = accept(listener.as_ref()) => {
                shared.note(|happened| happened.counters.connected(began.elapsed()));
                if shared.settings.borrow().toxics.door == AcceptMode::Reset {
                    connection::reset(&near);
                } else if let Some(number) = numbers.next() {
                    shared.note(|happened| happened.open.insert(number));
                    connections.spawn(connection::pass(near, number, Arc::clone(&shared)));
                }
            },
        }
    }
}

/// The next connection. Waits while the proxy refuses connections.
async fn accept(listener: Option<&TcpListener>) -> TcpStream {
    let Some(listener) = listener else {
        return std::future::pending().await;
    };
    loop {
        if let Ok((stream, _)) = listener.accept().await {
            return stream;
        }
        // Out of files, or a client that is gone already: neither is the proxy's end.
        tokio::time::sleep(PAUSE).await;
    }
}

/// Listens at the same address again, unless the test changes its mind.
async fn reopened(
    address: SocketAddr,
    settings: &mut watch::Receiver<Settings>,
) -> Option<TcpListener> {
    loop {
        if let Ok(listener) = TcpListener::bind(address).await {
            return Some(listener);
        }
        tokio::select! {
            _changed = settings.changed() => return None,
            () = tokio::time::sleep(PAUSE) => {},
        }
    }
}
