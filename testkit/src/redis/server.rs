//! One server process: started, awaited, asked whether it is there, and stopped when dropped.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use super::clock_shim::ShimmedClock;
use super::program::ServerProgram;
use crate::process::{Process, TempFolder, failed, on_a_free_port};

/// How long a server may take to answer on a busy machine.
const DEADLINE: Duration = Duration::from_secs(20);

/// A running server. It ends, with its folder, when this is dropped.
#[derive(Debug)]
pub struct RedisServer {
    /// Held until the end, which it brings about.
    _process: Process,
    address: SocketAddr,
}

impl RedisServer {
    /// Starts a server on a free port.
    ///
    /// # Panics
    /// Its program is missing, or it does not come up.
    #[must_use]
    pub fn start(kind: ServerProgram) -> Self {
        Self::start_with(kind, &[])
    }

    /// Starts a server on a free port with further arguments.
    ///
    /// # Panics
    /// Its program is missing, or it does not come up.
    #[must_use]
    pub fn start_with(kind: ServerProgram, arguments: &[&str]) -> Self {
        on_a_free_port(&format!("{kind:?}"), |address| {
            Self::try_start(kind, address, arguments, None)
        })
    }

    /// Starts a server on a free port whose wall clock is held at an instant, counted from 1970, and moved by the test.
    ///
    /// # Panics
    /// Its program is missing, it does not come up, or its clock cannot be moved on this machine.
    #[must_use]
    pub fn start_with_clock(kind: ServerProgram, at: Duration) -> (Self, ShimmedClock) {
        let clock = ShimmedClock::held_at(at).unwrap_or_else(|error| failed(&error));
        let server = on_a_free_port(&format!("{kind:?} on a clock of its own"), |address| {
            Self::try_start(kind, address, &[], Some(&clock))
        });
        (server, clock)
    }

    /// Starts a server at an address that was free a moment ago.
    ///
    /// # Panics
    /// Its program is missing, or it does not come up.
    #[must_use]
    pub fn start_at(kind: ServerProgram, address: SocketAddr) -> Self {
        Self::try_start(kind, address, &[], None)
            .unwrap_or_else(|error| failed(&format!("{kind:?} did not start: {error}")))
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where it listens, as a client wants it.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    fn try_start(
        kind: ServerProgram,
        address: SocketAddr,
        arguments: &[&str],
        clock: Option<&ShimmedClock>,
    ) -> Result<Self, String> {
        let folder = TempFolder::new("redis")?;
        let mut command = Command::new(kind.program());
        command
            .args(["--port", &address.port().to_string()])
            .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .arg("--dir")
            .arg(folder.path())
            .args(arguments);
        if kind != ServerProgram::OldRedis {
            // Before 7.0 it needs no permission and the option is unknown.
            command.args(["--enable-debug-command", "yes"]);
        }
        if let Some(clock) = clock {
            clock.wind(&mut command)?;
        }
        let process = Process::start(&format!("{kind:?} at {address}"), &mut command, folder)?;
        process.until_it_says("eady to accept connections")?;
        let server = Self {
            _process: process,
            address,
        };
        server.ping().map_err(|error| error.to_string())?;
        Ok(server)
    }

    fn ping(&self) -> std::io::Result<()> {
        let mut stream = TcpStream::connect_timeout(&self.address, DEADLINE)?;
        stream.set_read_timeout(Some(DEADLINE))?;
        stream.write_all(b"PING\r\n")?;
        let mut reply = [0; 7];
        stream.read_exact(&mut reply)?;
        if &reply == b"+PONG\r\n" {
            return Ok(());
        }
        Err(std::io::Error::other("it did not answer PING"))
    }
}
