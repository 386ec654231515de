//! One way of one connection: bytes are read at once, looked at, and written when and as far as what is wrong lets them.
//!
//! Must not know: listeners, the other way but for the commands that wait for a reply.

use std::collections::VecDeque;
use std::future::pending;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::proxy_state::{ProxyState, Settings};
use super::reply_rewriter::{AfterRewrite, ReplyFate};
use super::resp;
use super::toxics::{CloseMode, Direction, FlowToxics, SwallowMode};
use crate::seeded_rng::SeededRng;

/// What is read at a time, and how many such parts may be on the way.
const PART: usize = 65_536;
const MOST_PARTS: usize = 1_024;

/// The names of commands that wait for their replies, in order. Both ways of a connection know them.
#[derive(Debug, Default)]
pub(super) struct ForwardedCommand(Mutex<VecDeque<String>>);

impl ForwardedCommand {
    fn push(&self, name: String) {
        self.lock().push_back(name);
    }

    fn pop(&self) -> Option<String> {
        self.lock().pop_front()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is on the way.
enum StreamPart {
    Bytes(Instant, Vec<u8>),
    End(CloseMode),
}

/// One way.
pub(super) struct FlowOptions<'a> {
    way: Direction,
    shared: &'a Arc<ProxyState>,
    asked: &'a ForwardedCommand,
    dice: SeededRng,
    /// What was read and is not yet a whole command or reply.
    rest: Vec<u8>,
    /// Whether the bytes are something else than the Redis protocol.
    is_foreign: bool,
}

impl<'a> FlowOptions<'a> {
    pub(super) fn new(
        way: Direction,
        number: u64,
        shared: &'a Arc<ProxyState>,
        asked: &'a ForwardedCommand,
    ) -> Self {
        let own = number.wrapping_mul(2).wrapping_add(way as u64);
        Self {
            way,
            shared,
            asked,
            dice: SeededRng::new(shared.seed ^ own.wrapping_mul(0x2545_F491_4F6C_DD1D)),
            rest: Vec::new(),
            is_foreign: false,
        }
    }

    /// Passes bytes until one side ends, which the other is told, or until the connection has to end.
    pub(super) async fn run(self, from: ReadHalf<'_>, to: WriteHalf<'_>) -> Result<(), CloseMode> {
        let (sender, receiver) = mpsc::channel(MOST_PARTS);
        let writer = Writer {
            way: self.way,
            settings: self.shared.settings.subscribe(),
            passed: 0,
            is_lost: false,
        };
        tokio::try_join!(self.read(from, sender), writer.write(to, receiver))?;
        Ok(())
    }

    async fn read(
        mut self,
        mut from: ReadHalf<'_>,
        parts: mpsc::Sender<StreamPart>,
    ) -> Result<(), CloseMode> {
        let mut buffer = vec![0; PART];
        let mut last = Instant::now();
        loop {
            let count = from.read(&mut buffer).await;
            let count = count.map_err(|_reset| CloseMode::Reset)?;
            let read = buffer.get(..count).unwrap_or_default();
            let (bytes, then) = self.look_at(read);
            let flow = *self.shared.settings.borrow().toxics.flow(self.way);
            // Bytes never overtake each other.
            last = last.max(Instant::now() + self.delay(&flow));
            let sent = match then {
                _ if count == 0 => {
                    parts.send(StreamPart::Bytes(last, bytes)).await.ok();
                    return Ok(());
                }
                Some(AfterRewrite::End(ending)) => {
                    parts.send(StreamPart::Bytes(last, bytes)).await.ok();
                    parts.send(StreamPart::End(ending)).await
                }
                _ => parts.send(StreamPart::Bytes(last, bytes)).await,
            };
            if sent.is_err() {
                return Ok(());
            }
        }
    }

    pub(super) fn delay(&mut self, flow: &FlowToxics) -> Duration {
        let least = flow.latency.saturating_sub(flow.jitter);
        let most = flow.latency.saturating_add(flow.jitter);
        let span = u64::try_from((most - least).as_nanos()).unwrap_or(u64::MAX);
        let rolled = self.dice.below(span.saturating_add(1));
        least.saturating_add(Duration::from_nanos(rolled))
    }

    /// What of these bytes goes on, and what becomes of the connection. Nothing read is the end.
    fn look_at(&mut self, read: &[u8]) -> (Vec<u8>, Option<AfterRewrite>) {
        self.shared.note(|happened| {
            let counters = &mut happened.counters;
            match self.way {
                Direction::There => counters.bytes_there += read.len() as u64,
                Direction::Back => counters.bytes_back += read.len() as u64,
            }
        });
        if self.is_foreign {
            return (read.to_vec(), None);
        }
        self.rest.extend_from_slice(read);
        match self.way {
            Direction::There => {
                self.commands();
                (read.to_vec(), None)
            }
            Direction::Back => self.replies(read.is_empty()),
        }
    }

    /// Commands go on as they come, and are counted when they are whole.
    fn commands(&mut self) {
        let mut at = 0;
        loop {
            match resp::command(self.rest.get(at..).unwrap_or_default()) {
                Ok(Some((name, length))) => {
                    at += length;
                    self.shared
                        .note(|happened| happened.counters.commanded(&name));
                    self.asked.push(name);
                }
                Ok(None) => break,
                Err(resp::NotResp) => {
                    self.is_foreign = true;
                    at = self.rest.len();
                    break;
                }
            }
        }
        self.rest.drain(..at);
    }

    /// Replies go on when they are whole, each after its own fate.
    fn replies(&mut self, is_end: bool) -> (Vec<u8>, Option<AfterRewrite>) {
        let mut on = Vec::new();
        let mut at = 0;
        while let Ok(Some(length)) = resp::reply(self.rest.get(at..).unwrap_or_default()) {
            let whole = self.rest.get(at..at + length).unwrap_or_default();
            at += length;
            let fate = if resp::is_pushed(whole) {
                ReplyFate::Passed
            } else {
                let command = self.asked.pop().unwrap_or_default();
                self.shared.meddling().next(&command)
            };
            if fate != ReplyFate::Passed {
                self.shared.note(|happened| happened.counters.meddled += 1);
            }
            match fate {
                ReplyFate::Passed => on.extend_from_slice(whole),
                ReplyFate::Replaced(bytes) => on.extend(bytes),
                ReplyFate::Lost(AfterRewrite::GoOn) => {}
                ReplyFate::Lost(then) => return (on, Some(then)),
            }
        }
        self.rest.drain(..at);
        if is_end || resp::reply(&self.rest).is_err() {
            self.is_foreign = true;
            on.append(&mut self.rest);
        }
        (on, None)
    }
}

/// The far end of a way.
struct Writer {
    way: Direction,
    settings: watch::Receiver<Settings>,
    /// Bytes of this connection that were written.
    passed: u64,
    /// Whether bytes were lost, and with them all that follow.
    is_lost: bool,
}

impl Writer {
    async fn write(
        mut self,
        mut to: WriteHalf<'_>,
        mut parts: mpsc::Receiver<StreamPart>,
    ) -> Result<(), CloseMode> {
        let half_closes = self.settings.borrow().half_closes(self.way);
        loop {
            let part = tokio::select! {
                part = parts.recv() => part,
                () = half_closed(self.settings.clone(), self.way, half_closes), if !self.is_lost => {
                    to.shutdown().await.map_err(|_gone| CloseMode::Reset)?;
                    self.is_lost = true;
                    continue;
                }
            };
            match part {
                Some(StreamPart::Bytes(due, bytes)) => {
                    wait_until(due).await;
                    self.write_bytes(&mut to, &bytes).await?;
                }
                Some(StreamPart::End(ending)) => return Err(ending),
                None => {
                    // An end is lost with everything else.
                    if !self.is_lost {
                        to.shutdown().await.map_err(|_gone| CloseMode::Reset)?;
                    }
                    return Ok(());
                }
            }
        }
    }

    async fn write_bytes(&mut self, to: &mut WriteHalf<'_>, bytes: &[u8]) -> Result<(), CloseMode> {
        let mut bytes = bytes;
        while !bytes.is_empty() {
            while self.flow().silence == SwallowMode::Held {
                if self.settings.changed().await.is_err() {
                    return Err(CloseMode::Reset);
                }
            }
            let flow = self.flow();
            self.is_lost |= flow.silence == SwallowMode::Lost;
            if self.is_lost {
                return Ok(());
            }
            let (mut now, later) = bytes.split_at(at_once(&flow, bytes.len()));
            if let Some(limit) = flow.limit {
                let left = limit.bytes.saturating_sub(self.passed);
                let left = usize::try_from(left).unwrap_or(usize::MAX);
                if left < now.len() {
                    now = now.get(..left).unwrap_or_default();
                    to.write_all(now).await.map_err(|_gone| CloseMode::Reset)?;
                    return Err(limit.ending);
                }
            }
            to.write_all(now).await.map_err(|_gone| CloseMode::Reset)?;
            self.passed += now.len() as u64;
            bytes = later;
            wait_until(Instant::now() + pause(&flow, now.len(), !later.is_empty())).await;
        }
        Ok(())
    }

    fn flow(&mut self) -> FlowToxics {
        *self.settings.borrow_and_update().toxics.flow(self.way)
    }
}

/// How many bytes are written together.
fn at_once(flow: &FlowToxics, length: usize) -> usize {
    let sliced = flow.slices.map_or(length, |slices| slices.bytes.get());
    // A hundredth of a second's worth, so that bytes come evenly.
    let paced = flow.bandwidth.map_or(length, |bandwidth| {
        usize::try_from(bandwidth.get() / 100).unwrap_or(usize::MAX)
    });
    length.min(sliced).min(paced.max(1))
}

/// How long to wait after so many bytes.
fn pause(flow: &FlowToxics, bytes: usize, are_more: bool) -> Duration {
    let between = match flow.slices {
        Some(slices) if are_more => slices.pause,
        _ => Duration::ZERO,
    };
    let paced = flow.bandwidth.map_or(Duration::ZERO, |bandwidth| {
        let nanos = (bytes as u64).saturating_mul(1_000_000_000);
        Duration::from_nanos(nanos / bandwidth)
    });
    between.max(paced)
}

/// Not at all if it is past: the timer would round up to a millisecond.
async fn wait_until(due: Instant) {
    if due > Instant::now() {
        tokio::time::sleep_until(due).await;
    }
}

/// Waits until a test closes this half.
async fn half_closed(mut settings: watch::Receiver<Settings>, way: Direction, known: u64) {
    let wanted = settings.wait_for(|settings| settings.half_closes(way) > known);
    if wanted.await.is_err() {
        pending::<()>().await;
    }
}
