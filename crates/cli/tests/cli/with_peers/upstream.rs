//! The upstream of gateways: echoes each request and counts it. Must not know: more of HTTP than that needs.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::client::DEADLINE;

/// A running upstream. It answers until the test process ends.
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    answered: Arc<AtomicUsize>,
}

impl Upstream {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let answered = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&answered);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let counter = Arc::clone(&counter);
                thread::spawn(move || answer(stream, &counter));
            }
        });
        Self { address, answered }
    }

    /// How many requests it has answered.
    pub(crate) fn answered(&self) -> usize {
        self.answered.load(Ordering::SeqCst)
    }
}

/// Echoes one request and closes. A gateway may also open a connection without a request.
fn answer(mut stream: TcpStream, counter: &AtomicUsize) -> Option<()> {
    stream.set_read_timeout(Some(DEADLINE)).ok()?;
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut request = String::new();
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let lower = line.to_ascii_lowercase();
        if let Some(value) = lower.strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
        let is_end = line == "\r\n";
        request += &line;
        if is_end {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    request += &String::from_utf8(body).ok()?;
    counter.fetch_add(1, Ordering::SeqCst);
    let length = request.len();
    write!(
        stream,
        "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{request}"
    )
    .ok()
}
