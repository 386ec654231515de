//! A server as a child process: started, awaited, and stopped by its own id when dropped.
//!
//! Must not know: what it serves.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::cores::{Placement, with_placement};
use crate::system;

/// How long a server may take to come up on a busy machine.
const START_DEADLINE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(5);

/// A running server. It ends when this is dropped.
pub(crate) struct Server {
    child: Child,
}

impl Server {
    /// Starts a program on the core of servers and waits until something listens at every address.
    pub(crate) fn start(command: &mut Command, addresses: &[SocketAddr]) -> Result<Self, String> {
        Self::start_at(Placement::ServerCore, command, addresses)
    }

    /// The same on other cores.
    pub(crate) fn start_at(
        placement: Placement,
        command: &mut Command,
        addresses: &[SocketAddr],
    ) -> Result<Self, String> {
        let name = command.get_program().to_string_lossy().into_owned();
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = with_placement(placement, || command.spawn())?
            .map_err(|error| format!("cannot start {name}: {error}"))?;
        let mut server = Self { child };
        let began = Instant::now();
        for address in addresses {
            while TcpStream::connect(address).is_err() {
                if let Ok(Some(status)) = server.child.try_wait() {
                    return Err(format!("{name} ended at once, with {status}"));
                }
                if began.elapsed() > START_DEADLINE {
                    return Err(format!("{name} does not listen at {address}"));
                }
                std::thread::sleep(PAUSE);
            }
        }
        Ok(server)
    }

    pub(crate) fn processor_time(&self) -> Result<Duration, String> {
        system::processor_time(self.child.id())
    }

    pub(crate) fn resident(&self) -> Result<u64, String> {
        system::resident(self.child.id())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // By its own id, and waited for, so that nothing is left behind.
        if self.child.kill().is_ok() && self.child.wait().is_err() {
            eprintln!("process {} could not be waited for", self.child.id());
        }
    }
}

/// So many loopback addresses that were free a moment ago, all different.
pub(crate) fn free_addresses<const N: usize>() -> Result<[SocketAddr; N], String> {
    let mut kept = Vec::with_capacity(N);
    let mut addresses = [SocketAddr::from((Ipv4Addr::LOCALHOST, 0)); N];
    for address in &mut addresses {
        let listener = TcpListener::bind(*address).map_err(|error| error.to_string())?;
        *address = listener.local_addr().map_err(|error| error.to_string())?;
        kept.push(listener);
    }
    Ok(addresses)
}
