//! Thousands of unfinished bodies against the program itself. With 6,000 connections they once took 1.68 GiB, and 1.57 GiB stayed
//! after the clients were gone.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use crate::harness::tollgate;
use crate::serve::{DEADLINE, ServerProcess};

const CONNECTIONS: usize = 2_000;
/// The longest body of a batch. Without a common bound, 2,000 of them are 500 MiB.
const BATCH_LEN: usize = 262_144;
/// The default of `--max-buffered-bytes`.
const BUDGET: u64 = 64 << 20;
/// What the server may take beyond its budget: buffers of 2,000 connections, and what it takes without any.
const REST: u64 = 150 << 20;

/// The status and the body of one answer.
fn ask(address: SocketAddr, request: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head[9..12].to_owned(), body.to_owned())
}

/// A number of the metrics page.
fn metric(admin: SocketAddr, name: &str) -> u64 {
    let get = "GET /metrics HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n";
    let (status, page) = ask(admin, get);
    assert_eq!(status, "200");
    let value = page.lines().find_map(|line| line.strip_prefix(name));
    let value = value.unwrap_or_else(|| panic!("{name}")).trim();
    value.parse().unwrap()
}

#[test]
fn i06_memory_is_bounded_during_the_attack_and_goes_back_to_the_system() {
    let mut command = tollgate(&["serve", "--listen=127.0.0.1:0"]);
    command.env("TOLLGATE_LISTEN_ADMIN", "127.0.0.1:0");
    let server = ServerProcess::start(command);
    let admin = server.printed.lines().find_map(|line| {
        let (_, url) = line.split_once("http://")?;
        url.strip_suffix("/metrics")?.parse().ok()
    });
    let admin: SocketAddr = admin.expect("the admin listener");
    let before = metric(admin, "process_resident_memory_bytes ");
    let head =
        format!("POST /v1/check/batch HTTP/1.1\r\nhost: a\r\ncontent-length: {BATCH_LEN}\r\n\r\n");
    let body = vec![b' '; BATCH_LEN - 1];
    let check = "POST /v1/check HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 12\r\n\r\n{\"key\": \"a\"}";
    let (mut held, mut most) = (Vec::new(), 0);
    for number in 0..CONNECTIONS {
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream.set_write_timeout(Some(DEADLINE)).unwrap();
        // The server refuses most of them and closes the connection before all is sent.
        let _refused = stream
            .write_all(head.as_bytes())
            .and_then(|()| stream.write_all(&body));
        held.push(stream);
        if number % 100 == 0 {
            // Other clients, small bodies and operators are served meanwhile.
            assert_eq!(ask(server.address, check).0, "200");
            most = most.max(metric(admin, "process_resident_memory_bytes "));
            assert!(metric(admin, "tollgate_buffered_bytes ") <= BUDGET);
        }
    }
    let refused = metric(admin, "tollgate_buffer_refusals_total{listener=\"api\"} ");
    assert!(refused > 1_000, "{refused}");
    assert!(most < before + BUDGET + REST, "{before} {most}");
    let line = server.wait_for("no room to buffer a request");
    assert!(line.contains("max_buffered_bytes=67108864"), "{line}");
    drop(held);
    // Each try asks twice over a connection of its own, so that all of them take seconds.
    let is_back = (0..5_000).any(|_| {
        let buffered = metric(admin, "tollgate_buffered_bytes ");
        let after = metric(admin, "process_resident_memory_bytes ");
        buffered == 0 && after < before + (48 << 20)
    });
    assert!(is_back, "{before} {most}");
}
