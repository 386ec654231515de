//! Limiters in a world of their own: clients ask at random, decisions are made somewhere between question and answer, and the
//! limiter may be wrong in one way.

use crate::history::{Bucket, History, Operation, Record, RecordedVerdict, ReportedQuota};
use crate::seeded_rng::SeededRng;

pub(super) const BUCKET: Bucket = Bucket {
    interval: 1_000,
    burst: 10,
};

/// What is wrong with a limiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LimiterBug {
    Nothing,
    /// Looks, and charges a moment later what others have charged meanwhile too.
    ChecksThenActs,
    /// Asks again when an answer is lost, and charges twice what is heard once.
    Retries,
    /// Admits without charging now and then.
    ForgetsToCharge,
    /// Forgets everything now and then.
    LosesState,
    /// Denies with half of the burst left.
    DeniesEarly,
    /// Tells half of the wait.
    TellsHalfTheWait,
    /// Takes what remains and the reset from two clocks.
    TwoClocks,
    /// Charges the first key of two when the second refuses.
    ChargesInPart,
}

pub(super) struct SimulatedRun {
    pub(super) history: History,
    /// How far each key's state moved while it was never full.
    pub(super) moved: Vec<(&'static str, u64)>,
}

/// A question, and the instants of its way.
struct SimulatedRequest {
    request: u64,
    keys: Vec<usize>,
    cost: u64,
    invoked: u64,
    looks: u64,
    acts: u64,
    completed: u64,
    is_lost: bool,
}

const KEYS: [&str; 2] = ["alice", "bob"];

const BEGAN: u64 = 1_000_000_000;
const HALF: u64 = BUCKET.burst / 2;

/// What empties a bucket by half.
fn first(key: usize) -> Record {
    Record {
        request: 1_000_000 + key as u64,
        key: KEYS[key].to_owned(),
        act: Operation::Spend,
        cost: HALF,
        invoked: BEGAN,
        completed: BEGAN,
        verdict: RecordedVerdict::Admitted,
        is_degraded: false,
        retry_after: None,
        quota: None,
    }
}

/// Runs some questions through a limiter, whose buckets are half empty at first and kept busy, so that they are never full.
pub(super) fn run(seed: u64, wrong: LimiterBug) -> SimulatedRun {
    let mut dice = SeededRng::new(seed);
    let mut questions = questions(&mut dice, wrong);
    questions.sort_by_key(|question| question.looks);
    let mut limiter = BuggyLimiter {
        wrong,
        dice,
        states: [BEGAN + HALF * BUCKET.interval; 2],
        later: Vec::new(),
    };
    let mut records = vec![first(0), first(1)];
    for question in &questions {
        limiter.answer(question, &mut records);
    }
    limiter.charge(u64::MAX);
    let moved = (0..2).map(|key| (KEYS[key], limiter.states[key] - BEGAN));
    SimulatedRun {
        moved: moved.collect(),
        history: History { records },
    }
}

struct BuggyLimiter {
    wrong: LimiterBug,
    dice: SeededRng,
    states: [u64; 2],
    /// Charges that were decided and not yet made: when, on which key, how much.
    later: Vec<(u64, usize, u64)>,
}

impl BuggyLimiter {
    /// Makes the charges that are due.
    fn charge(&mut self, now: u64) {
        let states = &mut self.states;
        self.later.retain(|&(at, key, price)| {
            if at <= now {
                states[key] = states[key].max(at) + price;
            }
            at > now
        });
    }

    fn debt(&self, key: usize, now: u64) -> u64 {
        self.states[key].saturating_sub(now)
    }

    const fn burst(&self) -> u64 {
        match self.wrong {
            LimiterBug::DeniesEarly => BUCKET.burst / 2,
            _ => BUCKET.burst,
        }
    }

    fn answer(&mut self, question: &SimulatedRequest, records: &mut Vec<Record>) {
        let now = question.looks;
        self.charge(now);
        if self.wrong == LimiterBug::LosesState && self.dice.happens(2) {
            self.states = [now; 2];
        }
        let price = question.cost * BUCKET.interval;
        let capacity = self.burst() * BUCKET.interval;
        let lacks: Vec<u64> = question
            .keys
            .iter()
            .map(|key| (self.debt(*key, now) + price).saturating_sub(capacity))
            .collect();
        let wait = lacks.iter().copied().max().unwrap_or(0);
        let is_admitted = wait == 0;
        for (key, lack) in question.keys.iter().copied().zip(lacks) {
            let in_part = self.wrong == LimiterBug::ChargesInPart && lack == 0 && key == 0;
            let forgets = self.wrong == LimiterBug::ForgetsToCharge && self.dice.happens(10);
            if (is_admitted && !forgets) || in_part {
                let is_again = self.wrong == LimiterBug::Retries && question.is_lost;
                let times = if is_again { 2 } else { 1 };
                self.later.push((question.acts, key, price * times));
            }
        }
        // Where nothing comes between looking and acting, the state is the new one at once.
        self.charge(now);
        let is_lost = question.is_lost && self.wrong != LimiterBug::Retries;
        let verdict = match (is_lost, is_admitted) {
            (true, _) => RecordedVerdict::Lost,
            (false, true) => RecordedVerdict::Admitted,
            (false, false) => RecordedVerdict::Denied,
        };
        records
            .extend((question.keys.iter()).map(|key| self.record(question, *key, verdict, wait)));
    }

    fn record(
        &self,
        question: &SimulatedRequest,
        key: usize,
        verdict: RecordedVerdict,
        wait: u64,
    ) -> Record {
        let debt = self.debt(key, question.looks);
        let left = (self.burst() * BUCKET.interval).saturating_sub(debt);
        let skew = match self.wrong {
            LimiterBug::TwoClocks => 3 * BUCKET.interval,
            _ => 0,
        };
        let wait = match self.wrong {
            LimiterBug::TellsHalfTheWait => wait / 2 + 1,
            _ => wait,
        };
        Record {
            request: question.request,
            key: KEYS[key].to_owned(),
            act: Operation::Spend,
            cost: question.cost,
            invoked: question.invoked,
            completed: question.completed,
            verdict,
            is_degraded: false,
            retry_after: (verdict == RecordedVerdict::Denied).then_some(wait),
            quota: (question.keys.len() == 1).then_some(ReportedQuota {
                limit: self.burst(),
                remaining: left / BUCKET.interval,
                reset_after: debt + skew,
            }),
        }
    }
}

/// Questions that keep every bucket busy: twice as many as are refilled, and now and then one that comes back after its wait.
fn questions(dice: &mut SeededRng, wrong: LimiterBug) -> Vec<SimulatedRequest> {
    let mut at = BEGAN;
    (0..600)
        .map(|request| {
            at += dice.below(BUCKET.interval * 2 / 3);
            let invoked = at;
            let looks = invoked + dice.below(BUCKET.interval);
            let acts = match wrong {
                LimiterBug::ChecksThenActs => looks + dice.below(BUCKET.interval * 3),
                _ => looks,
            };
            let keys = match dice.below(3) {
                0 => vec![0],
                1 => vec![1],
                _ => vec![0, 1],
            };
            SimulatedRequest {
                request,
                keys,
                cost: 1 + dice.below(2),
                invoked,
                looks,
                acts,
                completed: acts + dice.below(BUCKET.interval),
                is_lost: dice.happens(3),
            }
        })
        .collect()
}
