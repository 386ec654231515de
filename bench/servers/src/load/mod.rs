//! The client: one thread, so many connections, and on each so many questions under way. It asks until it has its answers,
//! and takes the time of each.
//!
//! Bounded in count and in time. Must not know: who is asked, what questions look like.

pub(crate) mod grpc;
pub(crate) mod http;
pub(crate) mod resp;

use std::collections::VecDeque;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use crate::histogram::Histogram;

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
    /// Questions under way on each.
    pub(crate) depth: usize,
    /// Whether the next ones are asked together when all are answered, as pipelining clients do; else one for each answer.
    pub(crate) in_batches: bool,
}

/// What a lap has shown.
pub(crate) struct Lap {
    pub(crate) wall: Duration,
    /// What the server's clock has counted meanwhile.
    pub(crate) processor: Duration,
    pub(crate) latencies: Histogram,
}

/// Whom to ask, and how.
pub(crate) struct Way<'a> {
    pub(crate) address: SocketAddr,
    pub(crate) shape: Shape,
    pub(crate) talk: &'a dyn Fn() -> Box<dyn Talk>,
    /// The processor time that the server has used so far.
    pub(crate) processor: &'a dyn Fn() -> Result<Duration, String>,
}

struct Client {
    poll: Poll,
    events: Events,
    lines: Vec<Line>,
    buffer: Vec<u8>,
    shape: Shape,
}

struct Line {
    stream: TcpStream,
    talk: Box<dyn Talk>,
    /// Bytes of an answer that has arrived in part.
    pending: Vec<u8>,
    unsent: Vec<u8>,
    /// When each question under way was asked; answers come in this order, or nearly so.
    asked: VecDeque<Instant>,
}

/// Asks about every key in turn and waits for all answers, each of which must admit. Before anything is counted, every
/// connection is used once.
pub(crate) fn lap(way: &Way<'_>, keys: &[u32]) -> Result<Lap, String> {
    let mut client = Client::open(way)?;
    let first = keys.first().copied().unwrap_or(0);
    let warm = vec![first; way.shape.connections * way.shape.depth];
    client.ask_all(&warm, &mut Histogram::new())?;
    let mut latencies = Histogram::new();
    let (began, used) = (Instant::now(), (way.processor)()?);
    client.ask_all(keys, &mut latencies)?;
    Ok(Lap {
        wall: began.elapsed(),
        processor: (way.processor)()?.saturating_sub(used),
        latencies,
    })
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

impl Client {
    fn open(way: &Way<'_>) -> Result<Self, String> {
        let poll = Poll::new().map_err(|error| error.to_string())?;
        let open = |index| {
            // Connected before anything is measured, so that a lap begins with questions.
            let stream = std::net::TcpStream::connect(way.address)?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            let mut stream = TcpStream::from_std(stream);
            let both = Interest::READABLE | Interest::WRITABLE;
            poll.registry().register(&mut stream, Token(index), both)?;
            let mut line = Line {
                stream,
                talk: (way.talk)(),
                pending: Vec::new(),
                unsent: Vec::new(),
                asked: VecDeque::with_capacity(way.shape.depth),
            };
            line.talk.greet(&mut line.unsent);
            Ok::<_, std::io::Error>(line)
        };
        let lines: Result<Vec<Line>, _> = (0..way.shape.connections).map(open).collect();
        let lines = lines.map_err(|error| format!("cannot connect to {}: {error}", way.address))?;
        Ok(Self {
            poll,
            events: Events::with_capacity(1_024),
            lines,
            buffer: vec![0; READ_LEN],
            shape: way.shape,
        })
    }

    fn ask_all(&mut self, keys: &[u32], latencies: &mut Histogram) -> Result<(), String> {
        let mut left = keys.len();
        let mut keys = keys.iter().copied();
        let began = Instant::now();
        for line in &mut self.lines {
            line.ask(keys.by_ref().take(self.shape.depth));
            line.send()?;
        }
        while left > 0 {
            if began.elapsed() > DEADLINE {
                return Err(format!("{left} answers are missing after {DEADLINE:?}"));
            }
            let waited = self
                .poll
                .poll(&mut self.events, Some(Duration::from_secs(1)));
            waited.or_else(|error| match error.kind() {
                ErrorKind::Interrupted => Ok(()),
                _ => Err(error.to_string()),
            })?;
            for event in &self.events {
                let Some(line) = self.lines.get_mut(event.token().0) else {
                    continue;
                };
                if event.is_readable() {
                    let answers = line.read(&mut self.buffer, latencies)?;
                    left = left.saturating_sub(answers);
                    let more = match (self.shape.in_batches, line.asked.is_empty()) {
                        (true, false) => 0,
                        (true, true) => self.shape.depth,
                        (false, _) => answers,
                    };
                    line.ask(keys.by_ref().take(more));
                }
                line.send()?;
            }
        }
        Ok(())
    }
}

impl Line {
    fn ask(&mut self, keys: impl Iterator<Item = u32>) {
        let now = Instant::now();
        for key in keys {
            self.talk.ask(key, &mut self.unsent);
            self.asked.push_back(now);
        }
    }

    fn send(&mut self) -> Result<(), String> {
        while !self.unsent.is_empty() {
            match self.stream.write(&self.unsent) {
                Ok(sent) => {
                    self.unsent.drain(..sent);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(format!("cannot send: {error}")),
            }
        }
        Ok(())
    }

    /// Reads all that is there, and answers how many answers were in it.
    fn read(&mut self, buffer: &mut [u8], latencies: &mut Histogram) -> Result<usize, String> {
        let mut answers = 0;
        loop {
            let read = match self.stream.read(buffer) {
                Ok(0) => return Err("the server has closed a connection".to_owned()),
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(answers),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(format!("cannot read: {error}")),
            };
            self.pending
                .extend_from_slice(buffer.get(..read).unwrap_or_default());
            let heard = self.talk.hear(&self.pending, &mut self.unsent)?;
            if heard.admitted != heard.answers {
                let shown: String = self
                    .pending
                    .escape_ascii()
                    .take(600)
                    .map(char::from)
                    .collect();
                return Err(format!("an answer does not admit: {shown}"));
            }
            self.pending.drain(..heard.consumed);
            let now = Instant::now();
            for _ in 0..heard.answers {
                let asked = self.asked.pop_front();
                let asked = asked.ok_or("there are more answers than questions")?;
                let nanos = now.duration_since(asked).as_nanos();
                latencies.add(u64::try_from(nanos).unwrap_or(u64::MAX));
            }
            answers += heard.answers;
            // A short read has emptied the socket: asking again would only tell us so.
            if read < buffer.len() {
                return Ok(answers);
            }
        }
    }
}
