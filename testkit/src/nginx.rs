//! A real nginx for tests: its own process, its own folder, a free loopback port; stopped when dropped.
//!
//! Must not know: what its configuration says.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::{Process, TempFolder, failed, on_a_free_port};

/// A running nginx. It ends, with its folder, when this is dropped.
#[derive(Debug)]
pub struct Nginx {
    /// Held until the end, which it brings about.
    _process: Process,
    address: SocketAddr,
}

impl Nginx {
    /// Starts one server on a free port whose `server` block holds these locations.
    ///
    /// # Panics
    /// The program is missing (the message is the command that installs it), or it does not come up.
    #[must_use]
    pub fn serving(locations: &str) -> Self {
        on_a_free_port("nginx", |address| Self::try_start(locations, address))
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    fn try_start(locations: &str, address: SocketAddr) -> Result<Self, String> {
        let folder = TempFolder::new("nginx")?;
        let text = configuration(folder.path(), address, locations);
        let settings = folder.write("nginx.conf", &text)?;
        let mut command = Command::new(program());
        command
            .arg("-p")
            .arg(folder.path())
            .arg("-c")
            .arg(&settings)
            .args(["-e", "stderr"]);
        let process = Process::start(&format!("nginx at {address}"), &mut command, folder)?;
        // The last thing it says before it serves; its sockets are open by then.
        process.until_it_says("event method")?;
        Ok(Self {
            _process: process,
            address,
        })
    }
}

/// One process that does everything, so that ending it ends everything.
fn configuration(folder: &Path, address: SocketAddr, locations: &str) -> String {
    let folder = folder.display();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|kind| format!("    {kind}_temp_path {folder}/{kind};\n"))
        .collect();
    format!(
        "daemon off;\n\
         master_process off;\n\
         pid {folder}/nginx.pid;\n\
         error_log stderr notice;\n\
         events {{ worker_connections 64; }}\n\
         http {{\n\
         \x20   access_log off;\n\
         {temporary}\
         \x20   server {{\n\
         \x20       listen {address};\n\
         {locations}\n\
         \x20   }}\n\
         }}\n"
    )
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
