//! One server process: started, awaited, asked whether it is there, and stopped when dropped.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::program::Kind;
use super::shim::Clock;

/// How long a server may take to come up on a busy machine.
const START_DEADLINE: Duration = Duration::from_secs(20);
/// Another process may take the free port between finding it and using it.
const ATTEMPTS: u32 = 5;

/// A running server. It ends, with its folder, when this is dropped.
#[derive(Debug)]
pub struct Server {
    child: Child,
    address: SocketAddr,
    folder: PathBuf,
    log: Arc<Mutex<String>>,
}

impl Server {
    /// Starts a server on a free port.
    ///
    /// # Panics
    /// Its program is missing, or it does not come up.
    #[must_use]
    pub fn start(kind: Kind) -> Self {
        Self::start_with(kind, &[])
    }

    /// Starts a server on a free port with further arguments.
    ///
    /// # Panics
    /// Its program is missing, or it does not come up.
    #[must_use]
    pub fn start_with(kind: Kind, arguments: &[&str]) -> Self {
        let mut last = String::new();
        for _ in 0..ATTEMPTS {
            match Self::try_start(kind, free_address(), arguments, None) {
                Ok(server) => return server,
                Err(error) => last = error,
            }
        }
        failed(&format!("{kind:?} did not start: {last}"))
    }

    /// Starts a server on a free port whose wall clock is held at an instant, counted from 1970, and moved by the test.
    ///
    /// # Panics
    /// Its program is missing, it does not come up, or its clock cannot be moved on this machine.
    #[must_use]
    pub fn start_with_clock(kind: Kind, at: Duration) -> (Self, Clock) {
        let clock = Clock::held_at(at).unwrap_or_else(|error| failed(&error));
        let mut last = String::new();
        for _ in 0..ATTEMPTS {
            match Self::try_start(kind, free_address(), &[], Some(&clock)) {
                Ok(server) => return (server, clock),
                Err(error) => last = error,
            }
        }
        failed(&format!(
            "{kind:?} did not start on a clock of its own: {last}"
        ))
    }

    /// Starts a server at an address that was free a moment ago.
    ///
    /// # Panics
    /// Its program is missing, or it does not come up.
    #[must_use]
    pub fn start_at(kind: Kind, address: SocketAddr) -> Self {
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
        kind: Kind,
        address: SocketAddr,
        arguments: &[&str],
        clock: Option<&Clock>,
    ) -> Result<Self, String> {
        let folder = std::env::temp_dir().join(format!(
            "tollgate-{}-{}",
            std::process::id(),
            address.port()
        ));
        std::fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
        let mut command = Command::new(kind.program());
        command
            .args(["--port", &address.port().to_string()])
            .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .arg("--dir")
            .arg(&folder)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        if kind != Kind::OldRedis {
            // Before 7.0 it needs no permission and the option is unknown.
            command.args(["--enable-debug-command", "yes"]);
        }
        if let Some(clock) = clock {
            clock.wind(&mut command)?;
        }
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        let log = Arc::new(Mutex::new(String::new()));
        let (ready, is_ready) = sync_channel(1);
        if let Some(output) = child.stdout.take() {
            let log = Arc::clone(&log);
            std::thread::spawn(move || collect(output, &log, &ready));
        }
        let server = Self {
            child,
            address,
            folder,
            log,
        };
        // The channel also ends when the process does, so a port that was taken is noticed at once.
        is_ready
            .recv_timeout(START_DEADLINE)
            .map_err(|_ended| server.log())?;
        server.ping().map_err(|error| error.to_string())?;
        Ok(server)
    }

    fn ping(&self) -> std::io::Result<()> {
        let mut stream = TcpStream::connect_timeout(&self.address, START_DEADLINE)?;
        stream.set_read_timeout(Some(START_DEADLINE))?;
        stream.write_all(b"PING\r\n")?;
        let mut reply = [0; 7];
        stream.read_exact(&mut reply)?;
        if &reply == b"+PONG\r\n" {
            return Ok(());
        }
        Err(std::io::Error::other("it did not answer PING"))
    }

    fn log(&self) -> String {
        self.log
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // By its own id, and waited for, so that nothing is left behind.
        if self.child.kill().is_ok() && self.child.wait().is_err() {
            eprintln!("the server at {} could not be waited for", self.address);
        }
        if std::thread::panicking() {
            eprintln!("log of the server at {}:\n{}", self.address, self.log());
        }
        if std::fs::remove_dir_all(&self.folder).is_err() {
            eprintln!("{} could not be removed", self.folder.display());
        }
    }
}

/// Keeps what the server says, and tells when it is ready.
fn collect(output: ChildStdout, log: &Mutex<String>, ready: &SyncSender<()>) {
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        if line.contains("eady to accept connections") {
            // Nobody listens any more if it took too long; then the log says so.
            let _is_heard = ready.try_send(());
        }
        let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
        log.push_str(&line);
        log.push('\n');
    }
}

fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0");
    match listener.and_then(|listener| listener.local_addr()) {
        Ok(address) => address,
        Err(error) => failed(&format!("no free port: {error}")),
    }
}

#[expect(clippy::panic, reason = "a test without its server must fail")]
fn failed(message: &str) -> ! {
    panic!("{message}")
}
