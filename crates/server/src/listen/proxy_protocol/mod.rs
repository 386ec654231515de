//! The PROXY protocol on our own listeners: a load balancer that forwards TCP says which client a connection comes from.
//!
//! A listener that expects the header serves no connection without it: a receiver that guesses lets clients choose their address.
//! Must not know: the protocols behind the header.

mod crc32c;
mod header;
#[cfg(test)]
mod tests;

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tollgate_http::TrustedProxies;

use self::header::{HeaderProgress, ProxiedSource, parse_header};
use super::listener::Peer;
use super::shutdown_or_timeout::confirmed_timeout;

/// Who may say where a connection comes from.
#[derive(Clone, Debug)]
pub(super) struct ProxyProtocol {
    trusted: TrustedProxies,
}

impl ProxyProtocol {
    pub(super) const fn new(trusted: TrustedProxies) -> Self {
        Self { trusted }
    }

    /// Reads the header within `time` and returns the peer that it names.
    ///
    /// # Errors
    /// The connection is not from a trusted proxy, or its header is invalid or late.
    pub(super) async fn read_header<S: AsyncRead + Unpin>(
        &self,
        stream: &mut S,
        mut peer: Peer,
        time: Duration,
    ) -> io::Result<Peer> {
        // A Unix socket has no address: the permissions of its directory say who may connect.
        if peer
            .address
            .is_some_and(|peer| !self.trusted.contains(peer.ip()))
        {
            let reason =
                "its PROXY header would not be from a trusted proxy; see --trusted-proxies";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, reason));
        }
        let slow = |_elapsed| io::Error::new(io::ErrorKind::TimedOut, "the PROXY header is late");
        let read = confirmed_timeout(time, read_source(stream)).await;
        if let ProxiedSource::Client(client) = read.map_err(slow)?? {
            peer.address = Some(client);
        }
        Ok(peer)
    }
}

/// Reads exactly the header: what follows it belongs to TLS or to the protocol behind.
async fn read_source<S: AsyncRead + Unpin>(stream: &mut S) -> io::Result<ProxiedSource> {
    let mut header = Vec::with_capacity(header::MAX_LINE_LEN);
    loop {
        let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
        match parse_header(&header).map_err(invalid)? {
            HeaderProgress::Complete(source) => return Ok(source),
            HeaderProgress::Needs(count) => {
                let end = header.len();
                header.resize(end.saturating_add(count), 0);
                let room = header.get_mut(end..).unwrap_or_default();
                stream.read_exact(room).await?;
            }
        }
    }
}

/// Any bytes as the header of a connection, for fuzzing: no panic, a bounded number of bytes is read, and what follows a header
/// does not change it.
#[doc(hidden)]
pub fn fuzz_proxy_header(bytes: &[u8]) {
    let mut taken = 0;
    loop {
        let Some(read) = bytes.get(..taken) else {
            return;
        };
        match parse_header(read) {
            Ok(HeaderProgress::Needs(0)) => unreachable_progress(read),
            Ok(HeaderProgress::Needs(count)) => taken += count,
            Ok(HeaderProgress::Complete(source)) => {
                assert!(taken <= 16 + 2_048, "{taken} bytes");
                assert_eq!(parse_header(read), Ok(HeaderProgress::Complete(source)));
                return;
            }
            Err(_) => return,
        }
    }
}

#[expect(clippy::panic, reason = "only for fuzzing")]
fn unreachable_progress(read: &[u8]) {
    panic!("no progress after {read:?}");
}
