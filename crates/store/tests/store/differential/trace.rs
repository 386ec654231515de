//! A random trace of requests, sent to core and to a subject, which must give the same replies.

use tollgate_core::concurrency::LeaseId;
use tollgate_core::limit::{Limit, LimitReply, Op, OpError, Quota};
use tollgate_core::reservation::{ReservationId, ReservationOptions};
use tollgate_core::{Nanos, Outcome, Receipt, Timestamp};
use tollgate_testkit::vectors::{CoreSubject, Subject, SubjectDecision, SubjectRequest};

use crate::quotas::{ALGORITHMS, variants};
use crate::support::{Random, START};

/// Keys of the algorithm under test, and all keys, the others to make batches with.
const OWN: usize = 16;
const KEYS: usize = 32;
const OPTIONS: ReservationOptions = ReservationOptions {
    hold: Nanos::from_secs(20),
    retention: Nanos::from_secs(20),
    max_records: 8,
};

/// How often each kind of step occurred.
#[derive(Debug, Default)]
pub(super) struct Coverage {
    kinds: std::collections::BTreeMap<&'static str, u64>,
}

impl Coverage {
    fn note(&mut self, kind: &'static str) {
        *self.kinds.entry(kind).or_default() += 1;
    }

    pub(super) fn at_least(&self, least: u64, kinds: &[&str]) {
        for kind in kinds {
            let coverage = self.kinds.get(kind).copied().unwrap_or(0);
            assert!(
                coverage >= least,
                "{kind} occurred {coverage} times: {self:?}"
            );
        }
    }
}

/// One key of one limit, and its receipts.
struct TracedKey {
    key: String,
    variants: [Limit; 3],
    limit: Limit,
    receipts: Vec<Receipt>,
}

pub(super) struct Trace<'a, S> {
    random: Random,
    now: Timestamp,
    keys: Vec<TracedKey>,
    core: CoreSubject,
    subject: &'a mut S,
    pub(super) coverage: Coverage,
}

/// Formats only on failure: there are millions of comparisons.
fn compare<T: std::fmt::Debug>(
    is_same: bool,
    what: impl FnOnce() -> String,
    core: &T,
    subject: &T,
) -> Result<(), String> {
    if is_same {
        return Ok(());
    }
    let what = what();
    Err(format!("{what}\n  core    {core:?}\n  subject {subject:?}"))
}

fn is_same(
    core: &Result<SubjectDecision, OpError>,
    subject: &Result<SubjectDecision, OpError>,
) -> bool {
    match (core, subject) {
        (Ok(core), Ok(subject)) => {
            (core.outcome, core.binding) == (subject.outcome, subject.binding)
                && core.answers == subject.answers
        }
        (Err(core), Err(subject)) => core == subject,
        _ => false,
    }
}

impl<'a, S: Subject> Trace<'a, S> {
    pub(super) fn new(algorithm: usize, seed: u64, subject: &'a mut S) -> Self {
        let mut random = Random(seed);
        let keys = (0..KEYS)
            .map(|n| {
                let other = usize::try_from(random.below(ALGORITHMS.len() as u64)).unwrap();
                let algorithm = if n < OWN { algorithm } else { other };
                let variants = variants(algorithm, &mut random);
                TracedKey {
                    key: format!("{n}"),
                    limit: variants[0],
                    variants,
                    receipts: Vec::new(),
                }
            })
            .collect();
        Self {
            random,
            now: START,
            keys,
            core: CoreSubject::default(),
            subject,
            coverage: Coverage::default(),
        }
    }

    pub(super) fn run(&mut self, steps: u64) -> Result<(), String> {
        // Insert all keys while all are in use. Otherwise a neighbour could overwrite an expired state that would count
        // again after the clock went back.
        for n in 0..self.keys.len() {
            let op = match self.keys[n].limit.quota() {
                Quota::Concurrency(_) => Op::Acquire {
                    id: LeaseId(0),
                    weight: 1,
                },
                _ => Op::Spend(1),
            };
            self.decide(&[(n, op)])?;
        }
        for step in 0..steps {
            self.step().map_err(|why| format!("step {step}: {why}"))?;
        }
        Ok(())
    }

    fn step(&mut self) -> Result<(), String> {
        self.tick();
        match self.random.below(100) {
            0 => {
                self.requota();
                Ok(())
            }
            1..=9 => self.reservation(),
            10..=39 => {
                let key = self.pick(OWN);
                let op = self.op(key, false);
                self.decide(&[(key, op)])
            }
            _ => {
                let mut batch = Vec::new();
                for _ in 0..1 + self.random.below(8) {
                    let key = self.pick(KEYS);
                    if batch.iter().all(|(taken, _)| *taken != key) {
                        batch.push((key, self.op(key, true)));
                    }
                }
                self.decide(&batch)
            }
        }
    }

    fn pick(&mut self, among: usize) -> usize {
        usize::try_from(self.random.below(among as u64)).unwrap()
    }

    fn tick(&mut self) {
        let span = |random: &mut Random, most| Nanos::from_nanos(random.below(most));
        let second = 1_000_000_000;
        self.now = match self.random.below(100) {
            0..=1 => {
                self.coverage.note("clock back");
                let back = span(&mut self.random, 90 * second);
                Timestamp::from_nanos(self.now.as_nanos() - back.as_nanos())
            }
            2 => {
                self.coverage.note("clock far ahead");
                self.now.after(span(&mut self.random, 200 * second))
            }
            3..=40 => self.now,
            _ => self.now.after(span(&mut self.random, second / 2)),
        };
    }

    fn requota(&mut self) {
        self.coverage.note("requota");
        let (n, variant) = (self.pick(OWN), self.pick(3));
        let key = &mut self.keys[n];
        let (old, new) = (key.limit, key.variants[variant]);
        // Core's subject rolls a counter on to the present even if its window length does not change; the store does
        // not. Both are equal until the clock goes back, so core's is skipped.
        let is_as_long = match (old.quota(), new.quota()) {
            (Quota::SlidingCounter(old), Quota::SlidingCounter(new)) => {
                old.window() == new.window()
            }
            _ => false,
        };
        if !is_as_long {
            self.core.replace(self.now, &key.key, &old, &new);
        }
        self.subject.replace(self.now, &key.key, &old, &new);
        key.limit = new;
    }

    fn op(&mut self, key: usize, in_batch: bool) -> Op {
        let cost = self.random.below(4);
        let lease = LeaseId(u128::from(self.random.below(6)));
        let is_concurrency = matches!(self.keys[key].limit.quota(), Quota::Concurrency(_));
        let kind = self.random.below(if is_concurrency { 6 } else { 12 });
        let receipt = self.keys[key].receipts.pop();
        let (name, op) = match (is_concurrency, kind) {
            (true, 0..=2) => (
                "acquire",
                Op::Acquire {
                    id: lease,
                    weight: cost,
                },
            ),
            // A lease that is not held is a note in the store and an error in core: compared alone.
            (true, 3) if !in_batch => ("renew", Op::Renew(lease)),
            (true, _) => ("release", Op::Release(lease)),
            (_, 0) => ("up to", Op::SpendUpTo(cost + 3)),
            (_, 1) => ("charge always", Op::ChargeAlways(cost)),
            (_, 2) => ("credit", Op::Credit(cost)),
            (_, 3 | 4) if let Some(receipt) = receipt => {
                ("refund", Op::Settle { receipt, actual: 0 })
            }
            (_, 5 | 6) if let Some(receipt) = receipt => {
                let actual = self.random.below(2 * receipt.cost + 2);
                let is_less = actual < receipt.cost;
                let name = if is_less { "settle down" } else { "settle up" };
                (name, Op::Settle { receipt, actual })
            }
            (_, 7) => ("huge", Op::Spend(u64::MAX - cost)),
            _ => ("spend", Op::Spend(cost)),
        };
        self.coverage.note(name);
        op
    }

    fn decide(&mut self, batch: &[(usize, Op)]) -> Result<(), String> {
        let checks: Vec<SubjectRequest<'_>> = batch
            .iter()
            .map(|(n, op)| SubjectRequest {
                key: &self.keys[*n].key,
                limit: &self.keys[*n].limit,
                op: *op,
            })
            .collect();
        let core = self.core.decide(self.now, &checks);
        let subject = self.subject.decide(self.now, &checks);
        let what = || format!("{} {checks:?}", self.now.as_nanos());
        compare(is_same(&core, &subject), what, &core, &subject)?;
        let Ok(decision) = core else {
            self.coverage.note("refused");
            return Ok(());
        };
        const SIZES: [&str; 9] = ["", "1", "2", "3", "4", "5", "6", "7", "8"];
        self.coverage.note(SIZES[batch.len()]);
        self.coverage.note(match decision.outcome {
            Outcome::Allow => "allow",
            Outcome::Wait(_) => "wait",
            Outcome::Deny { .. } => "deny",
            Outcome::Never => "never",
        });
        let admits = |answer: &LimitReply| answer.outcome.is_admitted();
        if !decision.outcome.is_admitted() && decision.answers.iter().any(admits) {
            self.coverage.note("all or nothing");
        }
        for ((n, _), answer) in batch.iter().zip(decision.answers) {
            if answer.receipt.cost > 0 {
                self.keys[*n].receipts.push(answer.receipt);
            }
        }
        Ok(())
    }

    fn reservation(&mut self) -> Result<(), String> {
        let key = self.pick(OWN);
        let key = &self.keys[key];
        if matches!(key.limit.quota(), Quota::Concurrency(_)) {
            return Ok(());
        }
        let id = ReservationId(u128::from(self.random.below(12)));
        let cost = self.random.below(4);
        let ask = SubjectRequest {
            key: &key.key,
            limit: &key.limit,
            op: Op::Spend(cost),
        };
        let now = self.now;
        let (name, core, subject) = match self.random.below(4) {
            0 | 1 => (
                "reserve",
                self.core.reserve(now, &OPTIONS, id, ask),
                self.subject.reserve(now, &OPTIONS, id, ask),
            ),
            kind => {
                let actual = (kind == 2).then_some(cost);
                (
                    if kind == 2 {
                        "settle reserved"
                    } else {
                        "cancel"
                    },
                    self.core.close(now, &OPTIONS, id, ask, actual),
                    self.subject.close(now, &OPTIONS, id, ask, actual),
                )
            }
        };
        let what = || format!("{} {name} {id:?} {ask:?}", now.as_nanos());
        compare(core == subject, what, &core, &subject)?;
        self.coverage.note(match core {
            Ok(_) => name,
            Err(_) => "reservation in no state for it",
        });
        Ok(())
    }
}
