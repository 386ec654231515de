//! redis-server with the token bucket that articles print, called by its digest.
//!
//! Must not know: how anything is measured.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::rc::Rc;

use super::{BURST, COUNT, Contender, PERIOD};
use crate::cores::Placement;
use crate::load::resp::{Admits, Commands};
use crate::process::{Server, free_addresses};

/// The script, out of the folder that tests find it in.
#[allow(unreachable_pub, dead_code, reason = "it is public where it lives")]
#[path = "../../../../testkit/src/redis/article_script.rs"]
mod article_script;

pub(crate) struct Article {
    server: Rc<Server>,
    address: SocketAddr,
    digest: String,
}

impl Article {
    pub(crate) fn start() -> Result<Self, String> {
        let (server, address) = redis_server(Placement::ServerCore, None)?;
        Ok(Self {
            server: Rc::new(server),
            address,
            digest: load(address)?,
        })
    }

    pub(crate) fn resp(&self) -> Contender {
        let digest = self.digest.clone();
        let talk = move || {
            let per_second = f64::from(COUNT) / f64::from(PERIOD);
            let [rate, burst, cost] = article_script::arguments(per_second, BURST.into(), 1);
            let words = ["EVALSHA", &digest, "1", "KEY", &rate, &burst, &cost];
            Commands::new(&words, Admits::One)
        };
        Contender::new(
            "redis-server, the articles' script",
            &self.server,
            self.address,
            talk,
        )
    }
}

/// A redis-server of our own, which keeps nothing on disk, with or without a module.
pub(super) fn redis_server(
    placement: Placement,
    module: Option<&Path>,
) -> Result<(Server, SocketAddr), String> {
    let [address] = free_addresses()?;
    let mut command = Command::new("redis-server");
    command.args(["--port", &address.port().to_string()]).args([
        "--bind",
        "127.0.0.1",
        "--save",
        "",
        "--appendonly",
        "no",
    ]);
    if let Some(module) = module {
        command.arg("--loadmodule").arg(module);
    }
    let server = Server::start_at(placement, &mut command, &[address])?;
    Ok((server, address))
}

/// Makes the script known, and answers what it is called by.
fn load(address: SocketAddr) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("SCRIPT LOAD: {error}");
    let mut stream = TcpStream::connect(address).map_err(failed)?;
    let (script, len) = (article_script::SCRIPT, article_script::SCRIPT.len());
    let command = format!("*3\r\n$6\r\nSCRIPT\r\n$4\r\nLOAD\r\n${len}\r\n{script}\r\n");
    stream.write_all(command.as_bytes()).map_err(failed)?;
    // `$40`, a line end, forty digits and a line end.
    let mut reply = [0; 47];
    stream.read_exact(&mut reply).map_err(failed)?;
    let digest = reply.get(5..45).map(String::from_utf8_lossy);
    digest
        .filter(|digest| digest.bytes().all(|byte| byte.is_ascii_hexdigit()))
        .map(|digest| digest.into_owned())
        .ok_or_else(|| format!("SCRIPT LOAD: {}", reply.escape_ascii()))
}
