//! A real nginx for tests: its own process, its own folder, a free loopback port; stopped when dropped.
//!
//! Must not know: what its configuration says.

use std::io::{BufRead as _, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long it may take to come up on a busy machine.
const START_DEADLINE: Duration = Duration::from_secs(20);
/// Another process may take the free port between finding it and using it.
const ATTEMPTS: u32 = 5;

/// A running nginx. It ends, with its folder, when this is dropped.
#[derive(Debug)]
pub struct Nginx {
    child: Child,
    address: SocketAddr,
    folder: PathBuf,
    log: Arc<Mutex<String>>,
}

impl Nginx {
    /// Starts one server on a free port whose `server` block holds these locations.
    ///
    /// # Panics
    /// The program is missing (the message is the command that installs it), or it does not come up.
    #[must_use]
    pub fn serving(locations: &str) -> Self {
        let mut last = String::new();
        for _ in 0..ATTEMPTS {
            match Self::try_start(locations) {
                Ok(nginx) => return nginx,
                Err(error) => last = error,
            }
        }
        failed(&format!("nginx did not start: {last}"))
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    fn log(&self) -> String {
        self.log
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn try_start(locations: &str) -> Result<Self, String> {
        let address = TcpListener::bind("127.0.0.1:0")
            .and_then(|listener| listener.local_addr())
            .map_err(|error| error.to_string())?;
        let name = format!("tollgate-nginx-{}-{}", std::process::id(), address.port());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
        let settings = folder.join("nginx.conf");
        std::fs::write(&settings, configuration(&folder, address, locations))
            .map_err(|error| error.to_string())?;
        let mut child = Command::new(program())
            .arg("-p")
            .arg(&folder)
            .arg("-c")
            .arg(&settings)
            .args(["-e", "stderr"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| error.to_string())?;
        let log = Arc::new(Mutex::new(String::new()));
        let (ready, is_ready) = sync_channel(1);
        if let Some(output) = child.stderr.take() {
            let log = Arc::clone(&log);
            std::thread::spawn(move || collect(output, &log, &ready));
        }
        let nginx = Self {
            child,
            address,
            folder,
            log,
        };
        // The channel also ends when the process does, so a port that was taken is noticed at once.
        is_ready
            .recv_timeout(START_DEADLINE)
            .map_err(|_ended| nginx.log())?;
        Ok(nginx)
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // By its own id, and waited for, so that nothing is left behind.
        if self.child.kill().is_ok() && self.child.wait().is_err() {
            eprintln!("nginx at {} could not be waited for", self.address);
        }
        if std::thread::panicking() {
            eprintln!("log of nginx at {}:\n{}", self.address, self.log());
        }
        if std::fs::remove_dir_all(&self.folder).is_err() {
            eprintln!("{} could not be removed", self.folder.display());
        }
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

/// Keeps what it says, and tells when its sockets are open.
fn collect(output: ChildStderr, log: &Mutex<String>, ready: &SyncSender<()>) {
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        // The last thing it says before it serves; its sockets are open by then.
        if line.contains("event method") {
            // Nobody listens any more if it took too long; then the log says so.
            let _is_heard = ready.try_send(());
        }
        let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
        log.push_str(&line);
        log.push('\n');
    }
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

#[expect(clippy::panic, reason = "a test without its server must fail")]
fn failed(message: &str) -> ! {
    panic!("{message}")
}
