//! Serving plain requests: all that has arrived is answered and sent in one write, until something arrives that is not plain.
//!
//! The buffers belong to the thread, not to the connection: one that waits holds none. Must not know: what is asked or
//! answered, what makes a request plain, sockets.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead as _, AsyncWriteExt as _, ReadBuf};
use tokio::time::{Instant, sleep};
use tollgate_core::Nanos;

use crate::counters::Counters;
use crate::http::{Answers, Limits, Question, answer};
use crate::listen::{Peer, Stopping, Stream, Vigil, Woken, send};
use crate::plain::plain;
use crate::reply::Reply;
use crate::saturation::Place;
use crate::wire::write_response;

/// What is read at once at most. A request that is longer is not plain.
const READ_LEN: usize = 32 * 1_024;
/// A buffer for answers that has grown beyond this is given back.
const KEPT_OUTPUT_LEN: usize = 256 * 1_024;

/// Serves plain requests until the connection is over, or something else has arrived: then the bytes of that.
pub(crate) async fn serve<A: Answers>(
    limits: Limits,
    answers: &A,
    stream: &mut Stream,
    peer: &Peer,
    stopping: &Stopping,
) -> io::Result<Option<Vec<u8>>> {
    let (stopped, timer) = (pin!(stopping.wait()), pin!(sleep(limits.head)));
    let mut vigil = Vigil::new(stopping, stopped, timer);
    let mut ready_since = Instant::now();
    loop {
        let round = poll_fn(|context| {
            let woken = vigil.look(context);
            // Whatever has happened, what has arrived is answered first.
            if let Poll::Ready(round) = poll_round(context, answers, stream, peer) {
                return Poll::Ready(round);
            }
            match woken {
                None => Poll::Pending,
                Some(Woken::Stop) => Poll::Ready(Ok(Round::END)),
                Some(Woken::Timer) => {
                    // The timer is not set for every request: it may have begun before the last one.
                    let ends = ready_since + limits.head;
                    if ends <= Instant::now() {
                        return Poll::Ready(Ok(Round::END));
                    }
                    vigil.wake_at(ends);
                    let _told = vigil.look(context);
                    Poll::Pending
                }
            }
        });
        let round = round.await?;
        let more = match round.unsent {
            Some(unsent) => unsent.send(stream, answers.counters()).await?,
            None => Vec::new(),
        };
        match round.then {
            Then::Read if !more.is_empty() => return Ok(Some(more)),
            Then::Read if !stopping.is_said() => ready_since = Instant::now(),
            Then::Read | Then::End => return Ok(None),
            Then::Others(mut bytes) => {
                bytes.extend_from_slice(&more);
                return Ok(Some(bytes));
            }
        }
    }
}

/// What came of what was read.
struct Round {
    unsent: Option<Box<Unsent>>,
    then: Then,
}

enum Then {
    Read,
    Others(Vec<u8>),
    End,
}

/// Answers that could not be sent at once.
struct Unsent {
    now: Vec<u8>,
    /// The last one is held back for so long.
    wait: Nanos,
    late: Vec<u8>,
    /// The place of whoever waits for it.
    _place: Option<Place>,
}

impl Round {
    const END: Self = Self {
        unsent: None,
        then: Then::End,
    };
}

impl Unsent {
    /// Sends all of it, and answers what has arrived meanwhile.
    async fn send(&self, stream: &mut Stream, counters: &Counters) -> io::Result<Vec<u8>> {
        let mut more = Vec::new();
        stream.write_all(&self.now).await?;
        if !self.wait.is_zero() {
            stream.flush().await?;
            let _held = counters.hold();
            hold(stream, self.wait, &mut more).await?;
            stream.write_all(&self.late).await?;
        }
        stream.flush().await?;
        Ok(more)
    }
}

/// Lets time pass, unless the client leaves: then nobody waits for the answer any more, and its place is another's. What
/// the client sends meanwhile is kept, as far as there is room for it.
async fn hold(stream: &mut Stream, wait: Nanos, more: &mut Vec<u8>) -> io::Result<()> {
    let mut over = pin!(sleep(Duration::from_nanos(wait.as_nanos())));
    poll_fn(|context| {
        if over.as_mut().poll(context).is_ready() {
            return Poll::Ready(Ok(()));
        }
        while more.len() < READ_LEN {
            let mut room = [0; 1_024];
            let mut room = ReadBuf::new(&mut room);
            ready!(Pin::new(&mut *stream).poll_read(context, &mut room))?;
            if room.filled().is_empty() {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
            more.extend_from_slice(room.filled());
        }
        Poll::Pending
    })
    .await
}

/// An answer that is to be held back.
#[derive(Default)]
struct Late {
    wait: Nanos,
    bytes: Vec<u8>,
    place: Option<Place>,
}

/// Buffers that whoever works on this thread may use until it waits.
struct Scratch {
    input: Box<[u8]>,
    output: Vec<u8>,
}

/// Reads what has arrived and answers it.
fn poll_round<A: Answers>(
    context: &mut Context<'_>,
    answers: &A,
    stream: &mut Stream,
    peer: &Peer,
) -> Poll<io::Result<Round>> {
    with_scratch(|Scratch { input, output }| {
        let mut buffer = ReadBuf::new(input);
        ready!(Pin::new(&mut *stream).poll_read(context, &mut buffer))?;
        let input = buffer.filled();
        if input.is_empty() {
            return Poll::Ready(Ok(Round::END));
        }
        output.clear();
        let (consumed, late) = answer_all(answers, input, peer, output);
        let rest = input.get(consumed..).unwrap_or_default();
        let then = if rest.is_empty() {
            Then::Read
        } else {
            Then::Others(rest.to_vec())
        };
        let sent = send(stream, context, output)?;
        let unsent = (!sent.is_gone || late.is_some()).then(|| {
            let Late { wait, bytes, place } = late.unwrap_or_default();
            Box::new(Unsent {
                now: output.get(sent.count..).unwrap_or_default().to_vec(),
                wait,
                late: bytes,
                _place: place,
            })
        });
        output.shrink_to(KEPT_OUTPUT_LEN);
        Poll::Ready(Ok(Round { unsent, then }))
    })
}

/// Answers the plain requests that the input begins with, and says how many bytes that were. One whose answer is to be held
/// back is the last.
fn answer_all<A: Answers>(
    answers: &A,
    input: &[u8],
    peer: &Peer,
    out: &mut Vec<u8>,
) -> (usize, Option<Late>) {
    let mut consumed = 0_usize;
    let mut now = None;
    while let Some(rest @ [_, ..]) = input.get(consumed..)
        && let Some(request) = plain(rest, answers)
    {
        consumed = consumed.saturating_add(request.len);
        let mut reply = answer(
            answers,
            &Question {
                method: &request.method,
                path: request.path,
                query: request.query,
                headers: &request.headers,
                body: request.body,
                peer,
            },
        );
        let wait = reply.wait();
        let now = *now.get_or_insert_with(Instant::now);
        if wait.is_zero() {
            drop(write(&mut reply, now, out));
        } else {
            let mut bytes = Vec::new();
            let place = write(&mut reply, now, &mut bytes);
            return (consumed, Some(Late { wait, bytes, place }));
        }
    }
    (consumed, None)
}

/// Writes an answer. Whoever waits for it has a place until it is sent.
fn write(reply: &mut Reply, now: Instant, out: &mut Vec<u8>) -> Option<Place> {
    let place = reply.take_place();
    write_response(reply, now, out);
    place
}

/// This thread's buffers. Nothing waits while it has them.
fn with_scratch<T>(work: impl FnOnce(&mut Scratch) -> T) -> T {
    thread_local! {
        static OWN: Cell<Option<Box<Scratch>>> = const { Cell::new(None) };
    }
    let mut scratch = OWN.take().unwrap_or_else(|| {
        Box::new(Scratch {
            input: vec![0; READ_LEN].into_boxed_slice(),
            output: Vec::with_capacity(READ_LEN),
        })
    });
    let done = work(&mut scratch);
    OWN.set(Some(scratch));
    done
}
