//! A real Prometheus for tests: its own process, its own folder, a free loopback port; stopped when dropped.
//!
//! Must not know: what it scrapes, or which rules it evaluates.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use crate::peer_programs::program;
use crate::process::{Process, TempFolder, on_a_free_port};

/// Longer than any answer takes, so only a hang reaches it.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A running Prometheus. It ends, with its folder, when this is dropped.
#[derive(Debug)]
pub struct Prometheus {
    process: Process,
    address: SocketAddr,
}

impl Prometheus {
    /// Starts Prometheus with these files beside each other, of which the first is its configuration.
    ///
    /// # Panics
    /// The program is missing, or it does not come up.
    #[must_use]
    pub fn running(files: &[(&str, &str)]) -> Self {
        on_a_free_port("prometheus", |address| Self::try_start(files, address))
    }

    /// The body of its answer to a GET of this path.
    ///
    /// # Errors
    /// It does not answer.
    pub fn get(&self, path: &str) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        // By this version no answer comes in chunks.
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let body = answer.split_once("\r\n\r\n").map(|(_, body)| body);
        Ok(body.unwrap_or_default().to_owned())
    }

    /// Waits until what it answers to a GET of this path is as it should be.
    ///
    /// # Errors
    /// It ended, or took too long. The message is everything that it said, and its last answer.
    pub fn until(
        &self,
        path: &str,
        mut is_reached: impl FnMut(&str) -> bool,
    ) -> Result<(), String> {
        let mut last = String::new();
        let waited = self.process.until(path, || {
            last = self.get(path).ok()?;
            is_reached(&last).then_some(())
        });
        waited.map_err(|error| format!("{error}\nits last answer was {last}"))
    }

    fn try_start(files: &[(&str, &str)], address: SocketAddr) -> Result<Self, String> {
        let folder = TempFolder::new("prometheus")?;
        let mut paths = Vec::new();
        for (name, text) in files {
            paths.push(folder.write(name, text)?);
        }
        let configuration = paths.first().ok_or("it has no configuration")?;
        let mut command = Command::new(program("prometheus"));
        command
            .arg(format!("--config.file={}", configuration.display()))
            .arg(format!("--storage.tsdb.path={}", folder.path().display()))
            .arg(format!("--web.listen-address={address}"));
        let process = Process::start(&format!("prometheus at {address}"), &mut command, folder)?;
        process.until_it_says("Server is ready to receive web requests")?;
        Ok(Self { process, address })
    }
}
