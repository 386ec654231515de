//! The load: one thread, so many connections, and on each so many requests under way. Every answer must admit.
//!
//! Two models: `closed` sends the next request when one is answered, and shows what a server can do at most; `open` sends
//! requests when they are due, answered or not, and shows how long callers wait. Must not know: who is asked.

pub(crate) mod client;
pub(crate) mod closed;
pub(crate) mod grpc;
pub(crate) mod http;
pub(crate) mod http2;
pub(crate) mod open;
pub(crate) mod open_model;
pub(crate) mod resp;

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::time::Duration;

/// A lap that takes longer than this has failed.
const DEADLINE: Duration = Duration::from_secs(120);
const READ_LEN: usize = 128 * 1_024;

/// How one connection talks: questions as bytes, and answers found in bytes.
pub(crate) trait Talk {
    /// Writes what the protocol sends before the first request.
    fn greet(&mut self, out: &mut Vec<u8>) {
        let _nothing = out;
    }

    /// Appends the question about a key.
    fn ask(&mut self, key: u32, out: &mut Vec<u8>);

    /// Looks for whole answers in what has arrived, and appends what the protocol wants said in return.
    fn hear(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<Heard, String>;
}

/// What was found in the bytes that have arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Heard {
    /// So many bytes are done with.
    pub(crate) consumed: usize,
    pub(crate) answers: usize,
    /// So many of the answers admit.
    pub(crate) admitted: usize,
}

/// How much is under way at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) connections: usize,
    /// Requests under way on each.
    pub(crate) depth: usize,
    /// Whether the next ones are sent together when all are answered, as pipelining clients do; else one for each answer.
    pub(crate) in_batches: bool,
}

/// Whom to ask, and how.
#[derive(Clone, Copy)]
pub(crate) struct Way<'a> {
    pub(crate) address: SocketAddr,
    pub(crate) shape: Shape,
    pub(crate) talk: &'a dyn Fn() -> Box<dyn Talk>,
}

/// One answer, as it came.
pub(crate) fn sample(address: SocketAddr, talk: &mut dyn Talk) -> Result<Vec<u8>, String> {
    let failed = |error: std::io::Error| format!("no answer from {address}: {error}");
    let mut stream = std::net::TcpStream::connect(address).map_err(failed)?;
    stream.set_read_timeout(Some(DEADLINE)).map_err(failed)?;
    let (mut out, mut input, mut buffer) = (Vec::new(), Vec::new(), vec![0; READ_LEN]);
    talk.greet(&mut out);
    talk.ask(0, &mut out);
    stream.write_all(&out).map_err(failed)?;
    loop {
        let read = stream.read(&mut buffer).map_err(failed)?;
        if read == 0 {
            return Err(format!("{address} has closed the connection"));
        }
        input.extend_from_slice(buffer.get(..read).unwrap_or_default());
        if talk.hear(&input, &mut Vec::new())?.answers > 0 {
            return Ok(input);
        }
    }
}
