//! `tollgate health`: whether a server on this machine is ready, for containers and scripts that have no other client.
//!
//! Must not know: what makes a server ready.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

use tollgate_server::listen::ListenAddress;

use crate::output::{CommandError, print, print_error};

/// Who does not answer within this is not well.
const TIMEOUT: Duration = Duration::from_secs(3);
/// More than any answer to this question has.
const MAX_RESPONSE_BYTES: u64 = 16_384;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Where to ask: the place of a listener of the same server that speaks HTTP and no TLS, as `serve` was given it
    #[arg(
        long,
        value_name = "PLACE",
        default_value = "127.0.0.1:8088",
        env = "TOLLGATE_LISTEN_ADMIN"
    )]
    at: ListenAddress,
}

/// Asks, and says what came of it. Answers whether the server is ready.
pub(crate) fn health(options: &Options) -> Result<bool, CommandError> {
    let place = &options.at;
    let answer = fetch_readyz(place);
    let why = match answer.as_ref().map(|answer| answer.split(' ').nth(1)) {
        Ok(Some("200")) => {
            print("ready\n")?;
            return Ok(true);
        }
        Ok(Some("503")) => "the server is stopping".to_owned(),
        Ok(_) => "the answer is not HTTP; if TLS is spoken there, ask a listener that --tls-listeners leaves out, \
                  or a Unix socket"
            .to_owned(),
        Err(error) => error.to_string(),
    };
    print_error(&format!("not ready: {place}: {why}\n"));
    Ok(false)
}

fn fetch_readyz(place: &ListenAddress) -> io::Result<String> {
    match place {
        ListenAddress::Off => Err(io::Error::other("nothing is listened on")),
        ListenAddress::Tcp(address) => {
            let stream = TcpStream::connect_timeout(&loopback_if_unspecified(*address), TIMEOUT)?;
            stream.set_read_timeout(Some(TIMEOUT))?;
            stream.set_write_timeout(Some(TIMEOUT))?;
            send_request(stream)
        }
        #[cfg(unix)]
        ListenAddress::Unix(path) => {
            let stream = std::os::unix::net::UnixStream::connect(path)?;
            stream.set_read_timeout(Some(TIMEOUT))?;
            stream.set_write_timeout(Some(TIMEOUT))?;
            send_request(stream)
        }
        #[cfg(not(unix))]
        ListenAddress::Unix(_) => Err(io::ErrorKind::Unsupported.into()),
    }
}

/// Whoever listens on all addresses is asked on one of them.
const fn loopback_if_unspecified(mut address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => address.set_ip(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => address.set_ip(IpAddr::V6(Ipv6Addr::LOCALHOST)),
        _ => {}
    }
    address
}

fn send_request(mut stream: impl Read + Write) -> io::Result<String> {
    stream.write_all(b"GET /readyz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.take(MAX_RESPONSE_BYTES).read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
