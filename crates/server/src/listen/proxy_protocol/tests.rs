//! Headers of the PROXY protocol: those of the specification, hostile ones, and the bytes behind them.

use super::header::{InvalidProxyHeader, MAX_LINE_LEN};
use super::*;
use crate::listen::LocalEndpoint;
use std::net::SocketAddr;
use tokio::io::AsyncWriteExt as _;

const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// A header of version 2.
fn v2(version: u8, family: u8, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len()).unwrap().to_be_bytes();
    [SIGNATURE, &[version, family], &length, payload].concat()
}

fn tcp4(extensions: &[u8]) -> Vec<u8> {
    let addresses = [192, 0, 2, 7, 198, 51, 100, 1, 0x30, 0x39, 0x01, 0xbb];
    v2(0x21, 0x11, &[&addresses, extensions].concat())
}

fn tcp6() -> Vec<u8> {
    let mut addresses = [0; 36];
    addresses[..4].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8]);
    addresses[15] = 7;
    addresses[32..].copy_from_slice(&[0x30, 0x39, 0x01, 0xbb]);
    v2(0x21, 0x21, &addresses)
}

/// The header with its checksum.
fn with_checksum() -> Vec<u8> {
    let mut header = tcp4(&[0x03, 0, 4, 0, 0, 0, 0, 0x05, 0, 1, 9]);
    let sum = super::crc32c::crc32c(&header).to_be_bytes();
    header[31..35].copy_from_slice(&sum);
    header
}

/// What a whole header says. Bytes are read as a connection does.
fn source(bytes: &[u8]) -> Result<Option<ProxiedSource>, InvalidProxyHeader> {
    let mut taken = 0;
    loop {
        match parse_header(&bytes[..taken])? {
            HeaderProgress::Complete(source) => {
                assert_eq!(taken, bytes.len(), "bytes behind the header");
                return Ok(Some(source));
            }
            HeaderProgress::Needs(count) => taken += count,
        }
        if taken > bytes.len() {
            return Ok(None);
        }
    }
}

#[test]
fn headers_of_the_specification_are_read() {
    let client = |text: &str| ProxiedSource::Client(text.parse::<SocketAddr>().unwrap());
    let longest = format!("PROXY UNKNOWN {}\r\n", "f".repeat(MAX_LINE_LEN - 16));
    for (header, expected) in [
        (
            b"PROXY TCP4 192.0.2.7 198.51.100.1 12345 443\r\n".to_vec(),
            client("192.0.2.7:12345"),
        ),
        (
            b"PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n".to_vec(),
            client("255.255.255.255:65535"),
        ),
        (
            b"PROXY TCP4 1.1.1.1 1.1.1.1 0 0\r\n".to_vec(),
            client("1.1.1.1:0"),
        ),
        (
            b"PROXY TCP6 2001:db8::7 ::1 12345 443\r\n".to_vec(),
            client("[2001:db8::7]:12345"),
        ),
        (
            b"PROXY TCP6 ::ffff:192.0.2.7 ::1 12345 443\r\n".to_vec(),
            client("192.0.2.7:12345"),
        ),
        (b"PROXY UNKNOWN\r\n".to_vec(), ProxiedSource::Connection),
        (
            b"PROXY UNKNOWN 192.0.2.7 anything\r\n".to_vec(),
            ProxiedSource::Connection,
        ),
        (longest.into_bytes(), ProxiedSource::Connection),
        (tcp4(&[]), client("192.0.2.7:12345")),
        (
            tcp4(&[0x04, 0, 0, 0xea, 0, 2, 1, 2]),
            client("192.0.2.7:12345"),
        ),
        (with_checksum(), client("192.0.2.7:12345")),
        (tcp6(), client("[2001:db8::7]:12345")),
        (v2(0x20, 0x00, &[]), ProxiedSource::Connection),
        (v2(0x20, 0x11, &[1; 12]), ProxiedSource::Connection),
        (v2(0x20, 0xff, &[1; 3]), ProxiedSource::Connection),
        (v2(0x21, 0x00, &[]), ProxiedSource::Connection),
        (v2(0x21, 0x31, &[1; 216]), ProxiedSource::Connection),
    ] {
        assert_eq!(
            source(&header),
            Ok(Some(expected)),
            "{}",
            header.escape_ascii()
        );
    }
}

#[test]
fn hostile_headers_are_refused() {
    let mut wrong_sum = with_checksum();
    wrong_sum[17] ^= 1;
    let too_long = format!("PROXY UNKNOWN {}\r\n", "f".repeat(MAX_LINE_LEN - 15));
    for header in [
        b"GET / HTTP/1.1\r\nhost: a\r\n\r\n".to_vec(),
        b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03aaaaaaaa".to_vec(),
        b"proxy TCP4 192.0.2.7 198.51.100.1 1 2\r\n".to_vec(),
        b"PROXY TCP4 192.0.2.7 198.51.100.1 1 2\n\r\n".to_vec(),
        b"PROXY TCP4 192.0.2.7 198.51.100.1 1 2\r \r\n".to_vec(),
        b"PROXY TCP4  192.0.2.7 198.51.100.1 1 2\r\n".to_vec(),
        b"PROXY TCP4 192.0.2.7 198.51.100.1 1 2 \r\n".to_vec(),
        b"PROXY TCP4 192.0.2.7 198.51.100.1 1\r\n".to_vec(),
        b"PROXY TCP4 192.0.2.07 198.51.100.1 1 2\r\n".to_vec(),
        b"PROXY TCP4 2001:db8::7 198.51.100.1 1 2\r\n".to_vec(),
        b"PROXY TCP4 192.0.2.7 nowhere 1 2\r\n".to_vec(),
        b"PROXY TCP6 192.0.2.7 198.51.100.1 1 2\r\n".to_vec(),
        b"PROXY TCP6 fe80::1%eth0 ::1 1 2\r\n".to_vec(),
        b"PROXY TCP4 192.0.2.7 198.51.100.1 65536 2\r\n".to_vec(),
        b"PROXY TCP4 192.0.2.7 198.51.100.1 01 2\r\n".to_vec(),
        b"PROXY TCP4 192.0.2.7 198.51.100.1 +1 2\r\n".to_vec(),
        b"PROXY TCP4 192.0.2.7 198.51.100.1 1 -2\r\n".to_vec(),
        b"PROXY UDP4 192.0.2.7 198.51.100.1 1 2\r\n".to_vec(),
        b"PROXY unknown\r\n\r\n".to_vec(),
        b"PROXY \xff\xff\xff\xff\xff\xff\xff\r\n".to_vec(),
        too_long.into_bytes(),
        v2(0x11, 0x11, &[1; 12]),
        v2(0x22, 0x11, &[1; 12]),
        v2(0x21, 0x12, &[1; 12]),
        v2(0x21, 0x22, &[1; 36]),
        v2(0x21, 0x41, &[1; 36]),
        v2(0x21, 0x11, &[1; 11]),
        v2(0x21, 0x21, &[1; 35]),
        v2(0x21, 0x31, &[1; 215]),
        v2(0x21, 0x11, &[1; 2_049]),
        tcp4(&[0x04, 0]),
        tcp4(&[0x04, 0, 2, 1]),
        tcp4(&[0x03, 0, 3, 1, 2, 3]),
        tcp4(&[0x03, 0, 4, 1, 2, 3, 4]),
        tcp4(&[0x03, 0, 4, 0, 0, 0, 0, 0x03, 0, 4, 0, 0, 0, 0]),
        wrong_sum,
    ] {
        assert!(source(&header).is_err(), "{}", header.escape_ascii());
    }
}

/// Every cut of a good header needs more bytes, never fewer than one and never more than there are.
#[test]
fn a_header_may_arrive_in_any_pieces() {
    for header in [
        b"PROXY TCP4 192.0.2.7 198.51.100.1 12345 443\r\n".to_vec(),
        with_checksum(),
        tcp6(),
        v2(0x21, 0x31, &[1; 216]),
    ] {
        for cut in 0..header.len() {
            match parse_header(&header[..cut]) {
                Ok(HeaderProgress::Needs(count)) => {
                    assert!(count > 0 && cut + count <= header.len(), "{cut}");
                }
                other => panic!("{cut}: {other:?}"),
            }
        }
    }
}

#[test]
fn control_a_changed_byte_of_a_summed_header_is_noticed() {
    let good = with_checksum();
    assert!(source(&good).is_ok());
    // The byte at 28 says that the extension is a checksum.
    for at in (16..good.len()).filter(|at| *at != 28) {
        let mut bad = good.clone();
        bad[at] ^= 0x10;
        assert_ne!(source(&bad).ok(), source(&good).ok(), "{at}");
    }
}

async fn read(trusted: &str, from: &str, bytes: &[u8]) -> (io::Result<Peer>, Vec<u8>) {
    let (mut client, mut server) = tokio::io::duplex(4_096);
    client.write_all(bytes).await.unwrap();
    let address: SocketAddr = from.parse().unwrap();
    let peer = Peer::new(Some(address), LocalEndpoint::Tcp(address));
    let proxy_protocol = ProxyProtocol::new(trusted.parse().unwrap());
    let named = proxy_protocol
        .read_header(&mut server, peer, Duration::from_secs(5))
        .await;
    drop(client);
    let mut rest = Vec::new();
    server.read_to_end(&mut rest).await.unwrap();
    (named, rest)
}

#[tokio::test]
async fn only_the_header_is_taken_from_the_stream() {
    for header in [
        tcp4(&[]),
        b"PROXY TCP4 192.0.2.7 198.51.100.1 12345 443\r\n".to_vec(),
    ] {
        let sent = [&header[..], b"PROXY TCP4 1.1.1.1 1.1.1.1 1 1\r\nGET /"].concat();
        let (peer, rest) = read("10.0.0.0/8", "10.0.0.1:9", &sent).await;
        assert_eq!(peer.unwrap().address, "192.0.2.7:12345".parse().ok());
        assert_eq!(
            rest, b"PROXY TCP4 1.1.1.1 1.1.1.1 1 1\r\nGET /",
            "a second header is no header"
        );
    }
}

#[tokio::test]
async fn a_client_that_is_no_trusted_proxy_cannot_name_its_address() {
    let (peer, rest) = read("10.0.0.0/8", "192.0.2.9:9", &tcp4(&[])).await;
    assert_eq!(peer.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    assert_eq!(rest, tcp4(&[]), "nothing is read");
}

#[tokio::test]
async fn a_header_that_says_nothing_leaves_the_address_of_the_connection() {
    let (peer, _) = read("10.0.0.0/8", "10.0.0.1:9", b"PROXY UNKNOWN\r\n").await;
    assert_eq!(peer.unwrap().address, "10.0.0.1:9".parse().ok());
}

#[tokio::test(start_paused = true)]
async fn a_header_that_never_ends_is_late() {
    let (_client, mut server) = tokio::io::duplex(64);
    let address: SocketAddr = "10.0.0.1:9".parse().unwrap();
    let peer = Peer::new(Some(address), LocalEndpoint::Tcp(address));
    let proxy_protocol = ProxyProtocol::new("10.0.0.0/8".parse().unwrap());
    let named = proxy_protocol
        .read_header(&mut server, peer, Duration::from_secs(5))
        .await;
    assert_eq!(named.unwrap_err().kind(), io::ErrorKind::TimedOut);
}

/// The same as the fuzz target `proxy_header` runs, on good headers with some bytes changed.
#[test]
fn any_bytes_make_progress_and_no_panic() {
    let mut random = tollgate_testkit::seeded_rng::SeededRng::new(7);
    let good = [
        with_checksum(),
        tcp6(),
        b"PROXY TCP4 192.0.2.7 198.51.100.1 12345 443\r\n".to_vec(),
    ];
    for round in 0..5_000 {
        let mut bytes = good[round % 3].clone();
        for _ in 0..random.below(6) {
            let at = usize::try_from(random.below(bytes.len() as u64)).unwrap();
            bytes[at] = u8::try_from(random.below(256)).unwrap();
        }
        fuzz_proxy_header(&bytes);
    }
}
