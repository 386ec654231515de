//! Connections of one thread, and what is under way on each.
//!
//! Must not know: when the next request is sent, what requests look like.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read as _, Write as _};
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use super::{DEADLINE, READ_LEN, Shape, Talk, Way};
use crate::histogram::Histogram;

/// So many connections are opened and used before more are: a server gives up on a connection that says nothing for seconds, and
/// thousands take that long on a busy machine.
const OPENED_TOGETHER: usize = 100;

pub(super) struct Client {
    pub(super) poll: Poll,
    events: Events,
    pub(super) lines: Vec<Line>,
    buffer: Vec<u8>,
    pub(super) shape: Shape,
}

/// One connection.
pub(super) struct Line {
    stream: TcpStream,
    talk: Box<dyn Talk>,
    /// Bytes of an answer that has arrived in part.
    pending: Vec<u8>,
    unsent: Vec<u8>,
    /// The instant from which each request under way is timed; answers come in this order, or nearly so.
    timed_from: VecDeque<Instant>,
}

impl Client {
    /// Connects, and uses every connection once before anything is counted.
    pub(super) fn open(way: &Way<'_>, first_key: u32) -> Result<Self, String> {
        let mut client = Self {
            poll: Poll::new().map_err(|error| error.to_string())?,
            events: Events::with_capacity(1_024),
            lines: Vec::with_capacity(way.shape.connections),
            buffer: vec![0; READ_LEN],
            shape: way.shape,
        };
        while client.lines.len() < way.shape.connections {
            let first = client.lines.len();
            let end = way.shape.connections.min(first + OPENED_TOGETHER);
            for index in first..end {
                let line = Line::open(way, &client.poll, Token(index));
                let failed = |error| format!("cannot connect to {}: {error}", way.address);
                client.lines.push(line.map_err(failed)?);
            }
            client.use_once(first, first_key)?;
        }
        Ok(client)
    }

    /// Uses the lines from this one on, as deep as all are used later.
    fn use_once(&mut self, first: usize, key: u32) -> Result<(), String> {
        let began = Instant::now();
        for line in self.lines.iter_mut().skip(first) {
            line.ask(std::iter::repeat_n(key, self.shape.depth), began);
            line.send()?;
        }
        let mut left = (self.lines.len() - first) * self.shape.depth;
        let mut uncounted = Histogram::new();
        while left > 0 {
            if began.elapsed() > DEADLINE {
                return Err(format!(
                    "{left} first answers are missing after {DEADLINE:?}"
                ));
            }
            self.turn(Duration::from_secs(1), &mut uncounted, |_, answers| {
                left = left.saturating_sub(answers);
            })?;
        }
        Ok(())
    }

    /// Waits for events at most so long, reads what has arrived, and tells of every connection how many answers it got.
    pub(super) fn turn(
        &mut self,
        timeout: Duration,
        latencies: &mut Histogram,
        mut answered: impl FnMut(&mut Line, usize),
    ) -> Result<(), String> {
        let waited = self.poll.poll(&mut self.events, Some(timeout));
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
                answered(line, answers);
            }
            line.send()?;
        }
        Ok(())
    }
}

impl Line {
    fn open(way: &Way<'_>, poll: &Poll, token: Token) -> std::io::Result<Self> {
        let stream = std::net::TcpStream::connect(way.address)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let mut stream = TcpStream::from_std(stream);
        let both = Interest::READABLE | Interest::WRITABLE;
        poll.registry().register(&mut stream, token, both)?;
        let mut line = Self {
            stream,
            talk: (way.talk)(),
            pending: Vec::new(),
            unsent: Vec::new(),
            timed_from: VecDeque::with_capacity(way.shape.depth),
        };
        line.talk.greet(&mut line.unsent);
        line.send().map_err(std::io::Error::other)?;
        Ok(line)
    }

    /// Requests under way.
    pub(super) fn under_way(&self) -> usize {
        self.timed_from.len()
    }

    /// Writes requests into the buffer of what is to be sent. They are timed from this instant.
    pub(super) fn ask(&mut self, keys: impl Iterator<Item = u32>, timed_from: Instant) {
        for key in keys {
            self.talk.ask(key, &mut self.unsent);
            self.timed_from.push_back(timed_from);
        }
    }

    pub(super) fn send(&mut self) -> Result<(), String> {
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

    /// Reads all that is there, and returns how many answers were in it.
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
                let shown = self.pending.escape_ascii().take(600).map(char::from);
                let shown: String = shown.collect();
                return Err(format!("an answer does not admit: {shown}"));
            }
            self.pending.drain(..heard.consumed);
            let now = Instant::now();
            for _ in 0..heard.answers {
                let from = self.timed_from.pop_front();
                let from = from.ok_or("there are more answers than requests")?;
                let nanos = now.saturating_duration_since(from).as_nanos();
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
