//! nginx with `limit_req`, one process, answering with a picture of one point.
//!
//! Not the same service: it limits what passes through it instead of being asked, by milliseconds and without saying what
//! is left. Must not know: how anything is measured.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;

use super::{BURST, Contender};
use crate::load::http::Requests;
use crate::process::{Server, free_addresses};

pub(crate) struct Nginx {
    server: Rc<Server>,
    address: SocketAddr,
    folder: PathBuf,
}

impl Nginx {
    pub(crate) fn start() -> Result<Self, String> {
        let [address] = free_addresses()?;
        let name = format!("tollgate-bench-nginx-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let settings = folder.join("nginx.conf");
        std::fs::create_dir_all(&folder)
            .and_then(|()| std::fs::write(&settings, configuration(&folder, address)))
            .map_err(|error| format!("{}: {error}", folder.display()))?;
        let mut command = Command::new(program()?);
        command
            .arg("-p")
            .arg(&folder)
            .arg("-c")
            .arg(&settings)
            .args(["-e", "stderr"]);
        let server = Server::start(&mut command, &[address])?;
        Ok(Self {
            server: Rc::new(server),
            address,
            folder,
        })
    }

    pub(crate) fn http(&self) -> Contender {
        let talk = || Requests::get("/?key=KEY");
        Contender::new("nginx limit_req", &self.server, self.address, talk)
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        if std::fs::remove_dir_all(&self.folder).is_err() {
            eprintln!("{} could not be removed", self.folder.display());
        }
    }
}

/// One process that does everything, so that its clock is all there is. A minute is its longest period for one request.
fn configuration(folder: &Path, address: SocketAddr) -> String {
    let folder = folder.display();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|kind| format!("    {kind}_temp_path {folder}/{kind};\n"))
        .collect();
    format!(
        "daemon off;\n\
         master_process off;\n\
         pid {folder}/nginx.pid;\n\
         error_log stderr crit;\n\
         events {{ worker_connections 1024; }}\n\
         http {{\n\
         \x20   access_log off;\n\
         \x20   keepalive_requests 1000000000;\n\
         \x20   limit_req_zone $arg_key zone=keys:256m rate=1r/m;\n\
         {temporary}\
         \x20   server {{\n\
         \x20       listen {address};\n\
         \x20       location / {{ limit_req zone=keys burst={BURST} nodelay; empty_gif; }}\n\
         \x20   }}\n\
         }}\n"
    )
}

pub(super) fn program() -> Result<PathBuf, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Where distributions put it is not on everybody's path.
    let folders = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    let mut candidates = folders.map(|folder| folder.join("nginx"));
    candidates
        .find(|candidate| candidate.is_file())
        .ok_or_else(|| {
            "nginx is not installed. Install it and run again:\n    \
         sudo apt-get install -y --no-install-recommends nginx"
                .to_owned()
        })
}
