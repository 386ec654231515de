//! The upstream of the proxies that are measured: one thread that answers every request with the same bytes.
//!
//! It reads no more of a request than where its head ends, because its own cost is on the core of the load. Requests have no
//! bodies. Must not know: who asks.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::SocketAddr;

use mio::event::Event;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};

const LISTENER: Token = Token(usize::MAX);
const HEAD_END: &[u8; 4] = b"\r\n\r\n";

/// What every request is answered with.
const BODY: &str = r#"{"id":7,"name":"seven","price":{"amount":1250,"currency":"EUR"},"tags":["a","b"],"stock":12}"#;

/// One connection.
struct Connection {
    stream: TcpStream,
    /// How many bytes of the end of a head have arrived.
    matched: usize,
    unsent: Vec<u8>,
}

pub(super) fn serve(address: SocketAddr) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{address}: {error}");
    let response = response();
    let mut poll = Poll::new().map_err(failed)?;
    let mut listener = TcpListener::bind(address).map_err(failed)?;
    poll.registry()
        .register(&mut listener, LISTENER, Interest::READABLE)
        .map_err(failed)?;
    let (mut events, mut buffer) = (Events::with_capacity(1_024), vec![0; 64 * 1_024]);
    let mut connections: Vec<Option<Connection>> = Vec::new();
    loop {
        match poll.poll(&mut events, None) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            polled => polled.map_err(failed)?,
        }
        for event in &events {
            if event.token() == LISTENER {
                accept(&listener, &poll, &mut connections).map_err(failed)?;
            } else if let Some(place) = connections.get_mut(event.token().0)
                && let Some(connection) = place
                && !connection.turn(event, &mut buffer, &response)
            {
                *place = None;
            }
        }
    }
}

fn response() -> Vec<u8> {
    let len = BODY.len();
    let head = "HTTP/1.1 200 OK\r\nserver: upstream\r\ndate: Wed, 18 Nov 2026 00:00:00 GMT\r\n\
                content-type: application/json\r\ncache-control: no-cache\r\netag: \"6f1c-7\"\r\n";
    format!("{head}content-length: {len}\r\n\r\n{BODY}").into_bytes()
}

fn accept(
    listener: &TcpListener,
    poll: &Poll,
    connections: &mut Vec<Option<Connection>>,
) -> std::io::Result<()> {
    loop {
        let mut stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        };
        stream.set_nodelay(true)?;
        let free = connections.iter().position(Option::is_none);
        let index = free.unwrap_or(connections.len());
        let both = Interest::READABLE | Interest::WRITABLE;
        poll.registry().register(&mut stream, Token(index), both)?;
        let connection = Some(Connection {
            stream,
            matched: 0,
            unsent: Vec::new(),
        });
        match connections.get_mut(index) {
            Some(place) => *place = connection,
            None => connections.push(connection),
        }
    }
}

impl Connection {
    /// Answers what has arrived. Returns whether the connection is open.
    fn turn(&mut self, event: &Event, buffer: &mut [u8], response: &[u8]) -> bool {
        if event.is_readable() {
            loop {
                let read = match self.stream.read(buffer) {
                    Ok(0) => return false,
                    Ok(read) => read,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(_) => return false,
                };
                let arrived = buffer.get(..read).unwrap_or_default();
                for _ in 0..count_heads(arrived, &mut self.matched) {
                    self.unsent.extend_from_slice(response);
                }
                // A short read has emptied the socket.
                if read < buffer.len() {
                    break;
                }
            }
        }
        while !self.unsent.is_empty() {
            match self.stream.write(&self.unsent) {
                Ok(sent) => drop(self.unsent.drain(..sent)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(_) => return false,
            }
        }
        true
    }
}

/// How many heads end in these bytes, after so many bytes of an end before them.
fn count_heads(bytes: &[u8], matched: &mut usize) -> usize {
    let mut heads = 0;
    for byte in bytes {
        *matched = match HEAD_END.get(*matched) {
            Some(wanted) if wanted == byte => *matched + 1,
            _ => usize::from(*byte == b'\r'),
        };
        if *matched == HEAD_END.len() {
            (*matched, heads) = (0, heads + 1);
        }
    }
    heads
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_counted_wherever_the_bytes_are_split() {
        let two = b"GET / HTTP/1.1\r\nhost: a\r\n\r\nGET / HTTP/1.1\r\n\r\n";
        for split in 0..two.len() {
            let (before, after) = two.split_at(split);
            let mut matched = 0;
            let heads = count_heads(before, &mut matched) + count_heads(after, &mut matched);
            assert_eq!(heads, 2, "split at {split}");
        }
        assert_eq!(count_heads(b"\r\n\r\r\n\n", &mut 0), 0);
    }
}
