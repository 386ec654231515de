//! Finds the addresses of hosts, and only those of this machine if a command may load nothing else.
//!
//! `localhost` is a name like others: a file of hosts or a name server may say that it is another machine. Must not know: URLs.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::vec::IntoIter;

use hyper_util::client::legacy::connect::dns::Name;
use tower_service::Service;

/// The system's resolver.
#[derive(Clone, Copy, Debug)]
pub(super) struct HostResolver {
    pub(super) is_loopback_only: bool,
}

impl Service<Name> for HostResolver {
    type Response = IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let is_loopback_only = self.is_loopback_only;
        Box::pin(async move {
            // The connector sets the port.
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            permitted(found, is_loopback_only)
        })
    }
}

/// The addresses that a request may be sent to. None is an error.
fn permitted(
    found: impl Iterator<Item = SocketAddr>,
    is_loopback_only: bool,
) -> io::Result<IntoIter<SocketAddr>> {
    let is_permitted =
        |address: &SocketAddr| !is_loopback_only || address.ip().to_canonical().is_loopback();
    let addresses: Vec<SocketAddr> = found.filter(is_permitted).collect();
    if addresses.is_empty() {
        let error = "the host has no address, or none of this machine";
        return Err(io::Error::new(io::ErrorKind::AddrNotAvailable, error));
    }
    Ok(addresses.into_iter())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(list: &[&str]) -> Vec<SocketAddr> {
        list.iter().map(|text| text.parse().unwrap()).collect()
    }

    /// `localhost` was trusted by its name. Where a file of hosts gives it another address, the load went there.
    #[test]
    fn a_load_on_localhost_goes_to_addresses_of_this_machine_only() {
        let found = addresses(&["10.0.0.1:0", "127.0.0.1:0", "[::1]:0", "[2001:db8::1]:0"]);
        let kept: Vec<_> = permitted(found.clone().into_iter(), true)
            .unwrap()
            .collect();
        assert_eq!(kept, addresses(&["127.0.0.1:0", "[::1]:0"]));
        let all: Vec<_> = permitted(found.clone().into_iter(), false)
            .unwrap()
            .collect();
        assert_eq!(all, found);
        assert!(permitted(addresses(&["10.0.0.1:0"]).into_iter(), true).is_err());
    }
}
