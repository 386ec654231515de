//! A real nginx for tests: its own process, its own folder, a free loopback port; stopped when dropped.
//!
//! Must not know: what its configuration says.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::{Process, TempFolder, failed, on_a_free_port};

/// The address in a configuration that a free one takes the place of.
pub const LISTEN: &str = "127.0.0.1:8000";

/// A running nginx. It ends, with its folder, when this is dropped.
#[derive(Debug)]
pub struct Nginx {
    /// Held until the end, which it brings about.
    process: Process,
    address: SocketAddr,
}

impl Nginx {
    /// Starts nginx with this configuration, which listens on [`LISTEN`]; a free port takes its place.
    ///
    /// # Panics
    /// The program is missing (the message is the command that installs it), or it does not come up.
    #[must_use]
    pub fn running(configuration: &str) -> Self {
        on_a_free_port("nginx", |address| Self::try_start(configuration, address))
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits until its log has this text.
    ///
    /// # Panics
    /// The text does not come.
    pub fn until_it_says(&self, text: &str) {
        self.process
            .until_it_says(text)
            .unwrap_or_else(|error| failed(&error));
    }

    /// Everything that it has written.
    #[must_use]
    pub fn log(&self) -> String {
        self.process.log()
    }

    fn try_start(configuration: &str, address: SocketAddr) -> Result<Self, String> {
        let folder = TempFolder::new("nginx")?;
        let text = in_folder(folder.path(), address, configuration);
        let settings = folder.write("nginx.conf", &text)?;
        // One process that does everything, so that ending it ends everything.
        let pid = folder.path().join("nginx.pid");
        let globals = format!("daemon off; master_process off; pid {};", pid.display());
        let mut command = Command::new(program());
        command
            .arg("-p")
            .arg(folder.path())
            .arg("-c")
            .arg(&settings)
            .args(["-e", "stderr", "-g", &globals]);
        let process = Process::start(&format!("nginx at {address}"), &mut command, folder)?;
        // The last thing it says before it serves; its sockets are open by then.
        process.until_it_says("event method")?;
        Ok(Self { process, address })
    }
}

/// The configuration with this address, and with every file that nginx writes in this folder.
fn in_folder(folder: &Path, address: SocketAddr, configuration: &str) -> String {
    let folder = folder.display();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|kind| format!("    {kind}_temp_path {folder}/{kind};\n"))
        .collect();
    configuration
        .replace(LISTEN, &address.to_string())
        .replacen("http {\n", &format!("http {{\n{temporary}"), 1)
}

fn program() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Where distributions put it is not on everybody's path.
    let folders = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    let mut candidates = folders.map(|folder| folder.join("nginx"));
    candidates
        .find(|candidate| candidate.is_file())
        .unwrap_or_else(|| {
            failed(
                "nginx is not installed. Install it and run again:\n    \
                 sudo apt-get install -y --no-install-recommends nginx",
            )
        })
}
