//! A proxy on pingora-proxy, with as much of a limit as pingora-limits gives: `tollgate-bench-pingora LISTEN UPSTREAM MOST`.
//!
//! One worker, HTTP/1.1 and HTTP/2 in, HTTP/1.1 out, the fields that proxies add. A key has `MOST` requests an hour, counted by an
//! estimate. Must not know: how anything is measured.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use pingora_core::apps::HttpServerOptions;
use pingora_core::server::Server;
use pingora_core::server::configuration::ServerConf;
use pingora_core::upstreams::peer::HttpPeer;
use pingora_core::{Error, ErrorType, Result};
use pingora_http::{RequestHeader, ResponseHeader};
use pingora_limits::rate::Rate;
use pingora_proxy::{ProxyHttp, Session, http_proxy_service};

struct Proxy {
    upstream: SocketAddr,
    rate: Rate,
    most: isize,
}

#[async_trait]
impl ProxyHttp for Proxy {
    type CTX = ();

    fn new_ctx(&self) {}

    async fn request_filter(&self, session: &mut Session, _ctx: &mut ()) -> Result<bool> {
        let key = session.req_header().headers.get("x-api-key");
        let key = key.map(|key| key.as_bytes()).unwrap_or_default();
        if self.rate.observe(&key, 1) <= self.most {
            return Ok(false);
        }
        let mut denied = ResponseHeader::build(429, Some(2))?;
        denied.insert_header("retry-after", "3600")?;
        denied.insert_header("content-length", "0")?;
        session
            .write_response_header(Box::new(denied), true)
            .await?;
        Ok(true)
    }

    async fn upstream_peer(&self, _session: &mut Session, _ctx: &mut ()) -> Result<Box<HttpPeer>> {
        Ok(Box::new(HttpPeer::new(self.upstream, false, String::new())))
    }

    async fn upstream_request_filter(
        &self,
        session: &mut Session,
        request: &mut RequestHeader,
        _ctx: &mut (),
    ) -> Result<()> {
        let client = session.client_addr().and_then(|address| address.as_inet());
        let client = client.ok_or_else(|| Error::new(ErrorType::InternalError))?;
        let client = client.ip().to_string();
        request.insert_header("x-forwarded-for", &client)?;
        request.insert_header("x-real-ip", &client)?;
        request.insert_header("x-forwarded-proto", "http")
    }
}

fn main() -> std::result::Result<(), String> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [listen, upstream, most] = words.as_slice() else {
        return Err("usage: tollgate-bench-pingora LISTEN UPSTREAM MOST".to_owned());
    };
    let proxy = Proxy {
        upstream: upstream
            .parse()
            .map_err(|error| format!("{upstream}: {error}"))?,
        rate: Rate::new(Duration::from_secs(3_600)),
        most: most.parse().map_err(|error| format!("{most}: {error}"))?,
    };
    let configuration = ServerConf {
        threads: 1,
        ..ServerConf::default()
    };
    let mut server = Server::new_with_opt_and_conf(None, configuration);
    server.bootstrap();
    let mut service = http_proxy_service(&Arc::clone(&server.configuration), proxy);
    if let Some(logic) = service.app_logic_mut() {
        let mut options = HttpServerOptions::default();
        options.h2c = true;
        logic.server_options = Some(options);
    }
    service.add_tcp(listen);
    server.add_service(service);
    server.run_forever()
}
