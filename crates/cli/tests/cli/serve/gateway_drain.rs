//! SIGTERM while requests are in progress: they finish, no more than the limit are in progress, and new clients are refused.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};

use super::gateway::gateway_address;
use super::{DEADLINE, PolicyFile, ServerProcess};
use crate::harness::tollgate;

const CAP: usize = 3;

/// Sends a request and returns its connection.
fn ask(gateway: SocketAddr) -> TcpStream {
    let mut client = TcpStream::connect(gateway).unwrap();
    client.set_read_timeout(Some(DEADLINE)).unwrap();
    let request = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    client.write_all(request).unwrap();
    client
}

fn response(mut client: TcpStream) -> String {
    let mut response = String::new();
    client.read_to_string(&mut response).unwrap();
    response
}

/// The head of a request, which the upstream does not answer yet.
fn accept(upstream: &TcpListener) -> TcpStream {
    let (mut stream, _) = upstream.accept().unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.extend(byte);
    }
    stream
}

#[test]
fn requests_in_progress_finish_after_sigterm() {
    let upstream = TcpListener::bind("127.0.0.1:0").unwrap();
    let file = PolicyFile::new(
        "gateway-drain",
        &format!("limits: [{{ name: in-flight, concurrency: {CAP} }}]"),
    );
    let mut command = tollgate(&[
        "serve",
        "--listen=127.0.0.1:0",
        "--listen-gateway=127.0.0.1:0",
    ]);
    let address = upstream.local_addr().unwrap();
    command.arg(format!("--upstream=http://{address}"));
    command.arg("--config").arg(&file.0);
    let server = ServerProcess::start(command);
    let gateway: SocketAddr = gateway_address(&server).parse().unwrap();
    let mut in_progress: Vec<_> = (0..CAP)
        .map(|_| {
            let client = ask(gateway);
            (client, accept(&upstream))
        })
        .collect();
    let denied = response(ask(gateway));
    assert!(denied.starts_with("HTTP/1.1 429"), "{denied}");
    // One of them has a part of its response already.
    let (_, first) = &mut in_progress[0];
    let start = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nab";
    first.write_all(start).unwrap();
    server.signal("TERM");
    server.wait_for("stopping");
    // The listener is closed, or closes the connection without a response.
    let refused = TcpStream::connect(gateway).map(|mut late| {
        let _closed = late.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let mut response = Vec::new();
        let _reset = late.read_to_end(&mut response);
        response
    });
    assert!(refused.is_err() || refused.is_ok_and(|response| response.is_empty()));
    for (number, (client, mut upstream)) in in_progress.into_iter().enumerate() {
        match number {
            0 => upstream.write_all(b"cd").unwrap(),
            _ => upstream
                .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nabcd")
                .unwrap(),
        }
        let response = response(client);
        assert!(
            response.starts_with("HTTP/1.1 200") && response.ends_with("\r\n\r\nabcd"),
            "{number}: {response}"
        );
    }
    let (status, last) = server.stop("TERM");
    assert!(status.success(), "{last}");
    // The upstream got no other request.
    upstream.set_nonblocking(true).unwrap();
    assert!(upstream.accept().is_err());
}
