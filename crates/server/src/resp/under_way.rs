//! Commands whose answers have to be waited for: begun in order, answered in order, and waited for together.
//!
//! What a client has sent in one go shares the way to the store: the next decision is asked for before the last is known, up
//! to [`MOST`] of them. Whatever is no decision waits for those before it, so a client never sees an answer out of turn. Must
//! not know: sockets, what commands mean to whoever decides.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use tollgate_store::Clock;

use super::commands::{self, After, Decision};
use super::families::Pending;
use super::parse::{Command, Parsed, Words, parse};
use super::server::{ENOUGH, Fed, Resp, Then};
use super::session::Session;
use super::tally::Tally;
use super::throttle::Family;
use super::write::Reply;
use super::{check, tickets};

/// Decisions of one connection that are waited for at the same time.
pub(super) const MOST: usize = 64;

/// An answer, and what it counts as.
struct Done {
    bytes: Vec<u8>,
    counts: Counts,
}

/// What a decision is counted as.
enum Counts {
    Throttled(Family, Option<bool>),
    Asked(bool),
    Nothing,
}

/// A decision on its way.
type Deciding<'a> = Pin<Box<dyn Future<Output = Done> + Send + 'a>>;

enum Slot<'a> {
    Deciding(Deciding<'a>),
    Done(Done),
}

/// Decisions on their way, in the order in which they are answered.
struct UnderWay<'a> {
    slots: VecDeque<Slot<'a>>,
}

impl<C: Clock> Resp<C> {
    /// [`feed`](Self::feed), where decisions have to be waited for.
    pub async fn feed_together(
        &self,
        session: &mut Session,
        input: &mut [u8],
        out: &mut Vec<u8>,
    ) -> Fed {
        let began = self.throttle.store().now();
        let mut under_way = UnderWay {
            slots: VecDeque::new(),
        };
        let (mut rest, mut consumed, mut done) = (input, 0_usize, 0);
        let then = loop {
            if out.len() >= ENOUGH {
                break Then::GoOn;
            }
            let mut words = Words::new();
            let len = match parse(rest, &mut words) {
                Parsed::More => break Then::Read,
                Parsed::Nothing(len) | Parsed::Command(len) => len,
                Parsed::Broken(broken) => {
                    under_way.finish(&mut session.tally, out).await;
                    let mut reply = Reply::new(out, session.is_resp3);
                    reply.error(format_args!("ERR Protocol error: {broken}"));
                    break Then::Close;
                }
            };
            consumed = consumed.saturating_add(len);
            let (bytes, after) = rest.split_at_mut_checked(len).unwrap_or_default();
            rest = after;
            let bytes: &[u8] = bytes;
            let command = Command::new(bytes, &words);
            if command.is_empty() {
                continue;
            }
            done += 1;
            let decision = Decision::of(command.word(0)).filter(|_| session.is_trusted);
            if let Some(decision) = decision {
                let deciding = self.decide(decision, bytes, words, session);
                under_way.begin(deciding, &mut session.tally, out).await;
                continue;
            }
            under_way.finish(&mut session.tally, out).await;
            if commands::run(self, session, &command, out) == After::Close {
                break Then::Close;
            }
        };
        under_way.finish(&mut session.tally, out).await;
        self.commands.fetch_add(done, Ordering::Relaxed);
        let span = || self.throttle.store().now().since(began);
        session.tally.hand_over(&self.metrics, span);
        Fed { consumed, then }
    }

    /// One decision, begun when it is first looked at.
    fn decide<'a>(
        &'a self,
        decision: Decision,
        bytes: &'a [u8],
        words: Words,
        session: &mut Session,
    ) -> Deciding<'a> {
        let is_resp3 = session.is_resp3;
        let checker = self.checker.as_deref();
        match decision {
            Decision::Throttle(family) => {
                let command = Command::new(bytes, &words);
                let mut said = Vec::new();
                let reply = &mut Reply::new(&mut said, is_resp3);
                let recent = &mut session.recent;
                let pending = Pending::read(&self.throttle, family, &command, recent, reply);
                Box::pin(async move {
                    let is_limited = match pending {
                        Some(pending) => {
                            let key = Command::new(bytes, &words).word(1);
                            let reply = &mut Reply::new(&mut said, is_resp3);
                            pending.run(&self.throttle, key, reply).await
                        }
                        None => None,
                    };
                    let counts = Counts::Throttled(family, is_limited);
                    Done {
                        bytes: said,
                        counts,
                    }
                })
            }
            Decision::Check | Decision::Acquire => Box::pin(async move {
                let command = Command::new(bytes, &words);
                let mut said = Vec::new();
                let reply = &mut Reply::new(&mut said, is_resp3);
                let is_acquire = decision == Decision::Acquire;
                let asked = check::run_together(checker, &command, is_acquire, reply).await;
                let counts = Counts::Asked(asked);
                Done {
                    bytes: said,
                    counts,
                }
            }),
            Decision::Report(report) => Box::pin(async move {
                let command = Command::new(bytes, &words);
                let mut said = Vec::new();
                let reply = &mut Reply::new(&mut said, is_resp3);
                tickets::run_together(checker, report, &command, reply).await;
                let counts = Counts::Nothing;
                Done {
                    bytes: said,
                    counts,
                }
            }),
        }
    }
}

impl<'a> UnderWay<'a> {
    /// Begins one more; if there are too many, after the first of them has been answered.
    async fn begin(&mut self, deciding: Deciding<'a>, tally: &mut Tally, out: &mut Vec<u8>) {
        let mut slot = Slot::Deciding(deciding);
        poll_fn(|context| {
            slot.look(context);
            Poll::Ready(())
        })
        .await;
        self.slots.push_back(slot);
        self.shrink(MOST.saturating_sub(1), tally, out).await;
    }

    /// Waits until all are answered.
    async fn finish(&mut self, tally: &mut Tally, out: &mut Vec<u8>) {
        self.shrink(0, tally, out).await;
    }

    /// Answers those that are decided and have nobody before them, until no more than so many are left.
    async fn shrink(&mut self, most: usize, tally: &mut Tally, out: &mut Vec<u8>) {
        poll_fn(|context| {
            self.answer(tally, out);
            if self.slots.len() <= most {
                return Poll::Ready(());
            }
            // All of them: a decision may take more than one question, and none is to wait for those before it.
            self.slots.iter_mut().for_each(|slot| slot.look(context));
            self.answer(tally, out);
            match self.slots.len() <= most {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
    }

    fn answer(&mut self, tally: &mut Tally, out: &mut Vec<u8>) {
        while let Some(Slot::Done(Done { bytes, counts })) = self
            .slots
            .pop_front_if(|slot| matches!(slot, Slot::Done(_)))
        {
            out.extend_from_slice(&bytes);
            match counts {
                Counts::Throttled(family, Some(is_limited)) => tally.throttled(family, is_limited),
                Counts::Throttled(_, None) => tally.failed(),
                Counts::Asked(is_decided) => tally.asked(is_decided),
                Counts::Nothing => {}
            }
        }
    }
}

impl Slot<'_> {
    fn look(&mut self, context: &mut Context<'_>) {
        if let Self::Deciding(deciding) = self
            && let Poll::Ready(done) = deciding.as_mut().poll(context)
        {
            *self = Self::Done(done);
        }
    }
}
