//! throttlecrab-server with its three transports and the store that it takes unless told otherwise.
//!
//! Must not know: how anything is measured.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::rc::Rc;

use prost::Message;

use super::{BURST, COUNT, Contender, PERIOD};
use crate::load::grpc::Calls;
use crate::load::http::Requests;
use crate::load::resp::{Admits, Commands, key};
use crate::process::{Server, free_addresses};

pub(crate) struct Throttlecrab {
    server: Rc<Server>,
    resp: SocketAddr,
    http: SocketAddr,
    grpc: SocketAddr,
}

/// `throttlecrab.ThrottleRequest`.
#[derive(Clone, PartialEq, Message)]
struct ThrottleRequest {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(int32, tag = "2")]
    max_burst: i32,
    #[prost(int32, tag = "3")]
    count_per_period: i32,
    #[prost(int32, tag = "4")]
    period: i32,
    #[prost(int32, tag = "5")]
    quantity: i32,
}

impl Throttlecrab {
    pub(crate) const NAME: &str = "throttlecrab-server";

    pub(crate) fn start(program: &Path, keys: u32) -> Result<Self, String> {
        let [resp, http, grpc] = free_addresses()?;
        let mut command = Command::new(program);
        command.args(["--redis", "--http", "--grpc", "--log-level", "error"]);
        for (name, address) in [("redis", resp), ("http", http), ("grpc", grpc)] {
            command.args([format!("--{name}-host"), address.ip().to_string()]);
            command.args([format!("--{name}-port"), address.port().to_string()]);
        }
        command.args(["--store-capacity", &keys.to_string()]);
        let server = Rc::new(Server::start(&mut command, &[resp, http, grpc])?);
        Ok(Self {
            server,
            resp,
            http,
            grpc,
        })
    }

    pub(crate) fn resp(&self) -> Contender {
        Contender::new(Self::NAME, &self.server, self.resp, commands).stalling()
    }

    pub(crate) fn http(&self) -> Contender {
        let body = format!(
            r#"{{"key":"KEY","max_burst":{BURST},"count_per_period":{COUNT},"period":{PERIOD},"quantity":1}}"#
        );
        let talk = move || Requests::post("/throttle", &body);
        Contender::new(Self::NAME, &self.server, self.http, talk)
            .filled_by(self.resp, commands)
            .stalling()
    }

    pub(crate) fn grpc(&self) -> Contender {
        let signed = |number| i32::try_from(number).unwrap_or(i32::MAX);
        let request = ThrottleRequest {
            key: key(0),
            max_burst: signed(BURST),
            count_per_period: signed(COUNT),
            period: signed(PERIOD),
            quantity: 1,
        };
        let message = request.encode_to_vec();
        let talk = move || Calls::new("/throttlecrab.RateLimiter/Throttle", &message);
        Contender::new(Self::NAME, &self.server, self.grpc, talk)
            .filled_by(self.resp, commands)
            .stalling()
    }
}

fn commands() -> Commands {
    let [burst, count, period] = [BURST, COUNT, PERIOD].map(|number| number.to_string());
    Commands::new(
        &["THROTTLE", "KEY", &burst, &count, &period, "1"],
        Admits::One,
    )
}
