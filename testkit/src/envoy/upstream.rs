//! The service behind a gateway: it answers every request as the test says, from threads of its own.
//!
//! Must not know: which gateway asks.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, BufRead, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::process::failed;

/// A gateway that keeps a connection open longer than this without a word is a hang.
const DEADLINE: Duration = Duration::from_secs(60);
/// More than any test asks to be read.
const LONGEST_BODY: u64 = 1 << 20;

/// A request as it came through the gateway.
#[derive(Clone, Debug)]
pub struct UpstreamRequest {
    /// `GET`, and so on.
    pub method: String,
    /// Path and query.
    pub target: String,
    fields: HashMap<String, String>,
}

impl UpstreamRequest {
    /// A field by its name.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&str> {
        let value = self.fields.get(&name.to_ascii_lowercase());
        value.map(String::as_str)
    }
}

/// What is answered.
#[derive(Clone, Debug)]
pub struct UpstreamReply {
    status: u16,
    fields: String,
    body: String,
}

impl UpstreamReply {
    /// An answer without fields and body.
    #[must_use]
    pub const fn new(status: u16) -> Self {
        Self {
            status,
            fields: String::new(),
            body: String::new(),
        }
    }

    /// The same with one more field.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.fields.push_str(&format!("{name}: {value}\r\n"));
        self
    }

    /// The same with a body.
    #[must_use]
    pub fn saying(mut self, body: &str) -> Self {
        body.clone_into(&mut self.body);
        self
    }
}

/// A running service. It stops taking connections when this is dropped.
pub struct Upstream {
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
}

impl Upstream {
    /// Starts one on a free port.
    ///
    /// # Panics
    /// There is no free port.
    #[must_use]
    pub fn answering(
        answer: impl Fn(&UpstreamRequest) -> UpstreamReply + Send + Sync + 'static,
    ) -> Self {
        let bound = TcpListener::bind("127.0.0.1:0")
            .and_then(|listener| Ok((listener.local_addr()?, listener)));
        let (address, listener) =
            bound.unwrap_or_else(|error| failed(&format!("no free port: {error}")));
        let is_over = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&is_over);
        let answer = Arc::new(answer);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if told.load(Ordering::Acquire) {
                    break;
                }
                let answer = Arc::clone(&answer);
                // It ends with its connection, which the gateway closes at the latest when it ends.
                std::thread::spawn(move || serve(&stream, &*answer));
            }
        });
        Self { address, is_over }
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upstream")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        // It waits for a connection, so it is given one.
        drop(TcpStream::connect(self.address));
    }
}

/// One request after another until the gateway has no more.
fn serve(stream: &TcpStream, answer: &dyn Fn(&UpstreamRequest) -> UpstreamReply) -> io::Result<()> {
    stream.set_read_timeout(Some(DEADLINE))?;
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    let mut writer = stream;
    while let Some(seen) = read(&mut reader)? {
        let reply = answer(&seen);
        let length = reply.body.len();
        let text = format!(
            "HTTP/1.1 {} -\r\n{}content-length: {length}\r\n\r\n{}",
            reply.status, reply.fields, reply.body
        );
        writer.write_all(text.as_bytes())?;
    }
    Ok(())
}

/// The next request; nothing if the connection is over.
fn read(reader: &mut impl BufRead) -> io::Result<Option<UpstreamRequest>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split(' ').map(str::to_owned);
    let (Some(method), Some(target)) = (words.next(), words.next()) else {
        return Err(io::Error::other("that is not a request"));
    };
    let mut fields = HashMap::new();
    loop {
        line.clear();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(": ") else {
            break;
        };
        fields.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    let length = fields.get("content-length").map_or(Ok(0), |n| n.parse());
    let length = length.map_err(io::Error::other)?;
    io::copy(
        &mut reader.take(u64::min(length, LONGEST_BODY)),
        &mut io::sink(),
    )?;
    Ok(Some(UpstreamRequest {
        method,
        target,
        fields,
    }))
}
