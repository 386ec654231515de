//! Asking Envoy's administration interface: one GET, one answer, and the numbers and addresses in it.
//!
//! Must not know: what they are for.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Far above what an answer takes.
const DEADLINE: Duration = Duration::from_secs(20);

/// The body of the answer, if that is 200.
pub(super) fn get(admin: SocketAddr, target: &str) -> Option<String> {
    let mut stream = TcpStream::connect_timeout(&admin, DEADLINE).ok()?;
    stream.set_read_timeout(Some(DEADLINE)).ok()?;
    let request = format!("GET {target} HTTP/1.1\r\nhost: admin\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    if head.split(' ').nth(1)? != "200" {
        return None;
    }
    if head.contains("transfer-encoding: chunked") {
        return whole(body);
    }
    Some(body.to_owned())
}

/// The chunks of a body, put together.
fn whole(chunks: &str) -> Option<String> {
    let mut whole = String::new();
    let mut rest = chunks;
    loop {
        let (length, behind) = rest.split_once("\r\n")?;
        let length = usize::from_str_radix(length, 16).ok()?;
        if length == 0 {
            return Some(whole);
        }
        whole.push_str(behind.get(..length)?);
        rest = behind.get(length..)?.strip_prefix("\r\n")?;
    }
}

/// The number in a line `name: number` of `/stats`.
pub(super) fn number(stats: &str, name: &str) -> Option<u64> {
    let mut lines = stats.lines().filter_map(|line| line.split_once(": "));
    lines.find(|(key, _)| *key == name)?.1.trim().parse().ok()
}

/// The address in a line `name::address` of `/listeners`.
pub(super) fn listener(listeners: &str, name: &str) -> Option<SocketAddr> {
    let mut lines = listeners.lines().filter_map(|line| line.split_once("::"));
    lines.find(|(key, _)| *key == name)?.1.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_put_together_and_one_that_is_cut_off_is_noticed() {
        let chunks = "4\r\nLIVE\r\n2\r\n!\n\r\n0\r\n\r\n";
        assert_eq!(whole(chunks).as_deref(), Some("LIVE!\n"));
        for end in 0..chunks.len() - 4 {
            assert_eq!(whole(&chunks[..end]), None, "{end}");
        }
    }

    #[test]
    fn numbers_and_addresses_are_found_by_their_whole_names() {
        let stats = "cluster.a.ratelimit.ok: 3\ncluster.a.ratelimit.okay: 4\n";
        assert_eq!(number(stats, "cluster.a.ratelimit.ok"), Some(3));
        assert_eq!(number(stats, "cluster.a.ratelimit"), None);
        let listeners = "edge::127.0.0.1:4711\n";
        let address = SocketAddr::from(([127, 0, 0, 1], 4711));
        assert_eq!(listener(listeners, "edge"), Some(address));
        assert_eq!(listener(listeners, "dge"), None);
    }
}
