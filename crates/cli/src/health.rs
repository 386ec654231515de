//! `tollgate health`: calls /readyz of a server on this machine, for containers and scripts without an HTTP client.
//!
//! Must not know: what makes a server ready.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

use tollgate_server::listen::ListenAddress;

use crate::output::{CommandError, print, print_error};

/// The timeout of the connection, and of each read and write.
const TIMEOUT: Duration = Duration::from_secs(3);
/// The largest response that is read.
const MAX_RESPONSE_BYTES: u64 = 16_384;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Address of an HTTP listener of the server that does not use TLS, as passed to `serve`
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = "127.0.0.1:8088",
        env = "TOLLGATE_LISTEN_ADMIN"
    )]
    at: ListenAddress,
}

/// Prints whether the server is ready, and returns it.
pub(crate) fn health(options: &Options) -> Result<bool, CommandError> {
    let address = &options.at;
    let response = fetch_readyz(address);
    let reason = match response.as_ref().map(|response| response.split(' ').nth(1)) {
        Ok(Some("200")) => {
            print("ready\n")?;
            return Ok(true);
        }
        Ok(Some("503")) => "the server is stopping".to_owned(),
        Ok(_) => "the response is not HTTP; if the listener uses TLS, use a listener that --tls-listeners leaves out, \
                  or a Unix socket"
            .to_owned(),
        Err(error) => error.to_string(),
    };
    print_error(&format!("not ready: {address}: {reason}\n"));
    Ok(false)
}

fn fetch_readyz(address: &ListenAddress) -> io::Result<String> {
    match address {
        ListenAddress::Off => Err(io::Error::other("the listener is off")),
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

/// Replaces 0.0.0.0 and :: by the loopback address.
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
    let mut response = Vec::new();
    stream.take(MAX_RESPONSE_BYTES).read_to_end(&mut response)?;
    Ok(String::from_utf8_lossy(&response).into_owned())
}
