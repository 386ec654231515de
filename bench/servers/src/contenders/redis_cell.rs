//! redis-server with the module redis-cell, whose command our server speaks too.
//!
//! No package registry has the module: a caller that wants it in a run builds it and names it. Must not know: how anything is
//! measured.

use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;

use super::article::redis_server;
use super::{BURST, COUNT, Contender, PERIOD};
use crate::cores::Placement;
use crate::load::resp::{Admits, Commands};
use crate::process::Server;

pub(crate) struct RedisCell {
    server: Rc<Server>,
    address: SocketAddr,
}

impl RedisCell {
    pub(crate) const NAME: &str = "redis-server, redis-cell";

    pub(crate) fn start(module: &Path) -> Result<Self, String> {
        let (server, address) = redis_server(Placement::ServerCore, Some(module))?;
        Ok(Self {
            server: Rc::new(server),
            address,
        })
    }

    pub(crate) fn resp(&self) -> Contender {
        let talk = || {
            let [burst, count, period] = [BURST, COUNT, PERIOD].map(|number| number.to_string());
            let words = ["CL.THROTTLE", "KEY", &burst, &count, &period, "1"];
            Commands::new(&words, Admits::Zero)
        };
        Contender::new(Self::NAME, &self.server, self.address, talk)
    }
}
