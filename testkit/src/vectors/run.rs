//! Running a suite against a subject, to the first answer that is not what the file says.
//!
//! Must not know: how files are written, how subjects decide.

use std::collections::HashMap;
use std::fmt;

use tollgate_core::limit::{LimitReply, Op, OpError};
use tollgate_core::{Outcome, Receipt, Timestamp};

use super::Suite;
use super::op::PartOp;
use super::parse::{Expected, Ledger, written};
use super::plan::{Action, Case, Expect, Part, Step};
use super::subject::{Ask, Decision, Reserved, Subject};

/// The first answer that is not what the file says.
#[derive(Debug)]
pub struct Mismatch {
    /// The file's name.
    pub file: String,
    /// The line that the step begins on.
    pub line: u64,
    /// The case's name.
    pub case: String,
    /// The step's number in the case, from one.
    pub step: usize,
    /// What was expected and what came.
    pub what: String,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            file,
            line,
            case,
            step,
            what,
        } = self;
        write!(f, "{file}:{line}: {case}: step {step}: {what}")
    }
}

impl std::error::Error for Mismatch {}

/// What a subject said, reduced to what files speak of.
struct Said {
    answer: Expected,
    details: Option<LimitReply>,
}

impl Said {
    fn decided(answer: LimitReply) -> Self {
        Self {
            answer: Expected::Outcome(answer.outcome),
            details: Some(answer),
        }
    }

    fn refused(refused: OpError) -> Self {
        Self {
            answer: Expected::Refused(refused),
            details: None,
        }
    }

    fn reserved(reserved: Reserved) -> Self {
        match reserved {
            Ok(answer) => Self::decided(answer),
            Err(Ledger::Refused(refused)) => Self::refused(refused),
            Err(why) => Self {
                answer: Expected::Nothing(why),
                details: None,
            },
        }
    }
}

/// Runs every case of the suite and answers how many there were.
///
/// # Errors
/// The first step whose answer is not the expected one.
pub fn run(suite: &Suite, subject: &mut impl Subject) -> Result<usize, Mismatch> {
    for case in &suite.cases {
        run_case(&suite.file, case, subject).map_err(|(step, line, what)| Mismatch {
            file: suite.file.clone(),
            line,
            case: case.name.clone(),
            step,
            what,
        })?;
    }
    Ok(suite.cases.len())
}

fn run_case(
    file: &str,
    case: &Case,
    subject: &mut impl Subject,
) -> Result<(), (usize, u64, String)> {
    let mut trace = Trace {
        prefix: format!("{file}/{}/", case.name),
        receipts: HashMap::new(),
        subject,
    };
    for (index, step) in case.steps.iter().enumerate() {
        for turn in 1..=step.times {
            let is_last = turn == step.times;
            trace.step(step, is_last).map_err(|what| {
                let turn = if step.times > 1 {
                    format!("time {turn}: ")
                } else {
                    String::new()
                };
                (index.saturating_add(1), step.line, format!("{turn}{what}"))
            })?;
        }
    }
    Ok(())
}

/// A case while it runs.
struct Trace<'a, S> {
    prefix: String,
    receipts: HashMap<String, Receipt>,
    subject: &'a mut S,
}

impl<S: Subject> Trace<'_, S> {
    fn step(&mut self, step: &Step, is_last: bool) -> Result<(), String> {
        let now = step.now;
        match &step.action {
            Action::Ask(part) => {
                let said = match self.decide(now, std::slice::from_ref(part))? {
                    Ok(decision) => {
                        let answer = decision.answers.first().ok_or("no answer at all")?;
                        Said::decided(*answer)
                    }
                    Err(refused) => Said::refused(refused),
                };
                self.compare(part, &said, is_last)
            }
            Action::Together(parts, verdict, binding) => {
                let decision = self.decide(now, parts)?;
                self.compare_all(parts, *verdict, *binding, decision, is_last)
            }
            Action::Requota { of, old, new } => {
                let key = self.key(of);
                self.subject.replace(now, &key, old, new);
                Ok(())
            }
            Action::Reserve(part, id, terms) => {
                let (key, op) = (self.key(&part.of), self.op(part)?);
                let ask = Ask {
                    key: &key,
                    limit: &part.limit,
                    op,
                };
                let said = Said::reserved(self.subject.reserve(now, terms, *id, ask));
                self.compare(part, &said, is_last)
            }
            Action::Close(part, id, terms, actual) => {
                let (key, op) = (self.key(&part.of), self.op(part)?);
                let ask = Ask {
                    key: &key,
                    limit: &part.limit,
                    op,
                };
                let said = Said::reserved(self.subject.close(now, terms, *id, ask, *actual));
                self.compare(part, &said, is_last)
            }
        }
    }

    fn decide(
        &mut self,
        now: Timestamp,
        parts: &[Part],
    ) -> Result<Result<Decision, OpError>, String> {
        let keys: Vec<String> = parts.iter().map(|part| self.key(&part.of)).collect();
        let mut asks = Vec::with_capacity(parts.len());
        for (part, key) in parts.iter().zip(&keys) {
            asks.push(Ask {
                key,
                limit: &part.limit,
                op: self.op(part)?,
            });
        }
        Ok(self.subject.decide(now, &asks))
    }

    fn key(&self, of: &str) -> String {
        format!("{}{of}", self.prefix)
    }

    fn op(&self, part: &Part) -> Result<Op, String> {
        match &part.op {
            PartOp::Plain(op) => Ok(*op),
            PartOp::Settle { receipt_of, actual } => {
                let receipt = self.receipts.get(receipt_of);
                let receipt = *receipt.ok_or_else(|| format!("`{receipt_of}` has no receipt"))?;
                Ok(Op::Settle {
                    receipt,
                    actual: *actual,
                })
            }
        }
    }

    fn compare_all(
        &mut self,
        parts: &[Part],
        verdict: Expected,
        binding: Option<Option<usize>>,
        decision: Result<Decision, OpError>,
        is_last: bool,
    ) -> Result<(), String> {
        let decision = match decision {
            Ok(decision) => decision,
            Err(refused) => {
                return differ("answer", &show(verdict), &show(Expected::Refused(refused)));
            }
        };
        differ(
            "answer",
            &show(verdict),
            &show(Expected::Outcome(decision.outcome)),
        )?;
        if let Some(binding) = binding {
            let name = |position: Option<usize>| {
                let part = position.and_then(|position| parts.get(position));
                part.map_or_else(|| "none".to_owned(), |part| part.of.clone())
            };
            differ("binding", &name(binding), &name(decision.binding))?;
        }
        differ("number of answers", &parts.len(), &decision.answers.len())?;
        for (part, answer) in parts.iter().zip(decision.answers) {
            self.compare(part, &Said::decided(answer), is_last)
                .map_err(|what| format!("{}: {what}", part.of))?;
        }
        Ok(())
    }

    /// Compares an answer with what the file says, and keeps the receipt for later steps. A row of equal steps is
    /// compared in what each answers, and only after the last in where the limit stands.
    fn compare(&mut self, part: &Part, said: &Said, is_last: bool) -> Result<(), String> {
        let Expect {
            answer,
            remaining,
            reset_after,
            charged,
        } = &part.expect;
        differ("answer", &show(*answer), &show(said.answer))?;
        let Some(details) = said.details else {
            let is_silent = remaining.is_none() && reset_after.is_none() && charged.is_none();
            return if is_silent {
                Ok(())
            } else {
                Err("there was no decision to compare".to_owned())
            };
        };
        if let Some(charged) = charged {
            differ("charged", charged, &details.receipt.cost)?;
        }
        if let Some(remaining) = remaining.filter(|_| is_last) {
            differ("remaining", &remaining, &details.status.remaining)?;
        }
        if let Some(reset_after) = reset_after.filter(|_| is_last) {
            differ(
                "reset_after",
                &written(reset_after),
                &written(details.status.reset_after),
            )?;
        }
        if let Some(label) = &part.label {
            self.receipts.insert(label.clone(), details.receipt);
        }
        Ok(())
    }
}

fn differ<T: PartialEq + fmt::Display>(what: &str, expected: &T, got: &T) -> Result<(), String> {
    if expected == got {
        return Ok(());
    }
    Err(format!("{what}: expected {expected}, got {got}"))
}

/// An answer as files write it.
fn show(answer: Expected) -> String {
    match answer {
        Expected::Outcome(Outcome::Allow) => "allow".to_owned(),
        Expected::Outcome(Outcome::Wait(wait)) => format!("wait {}", written(wait)),
        Expected::Outcome(Outcome::Deny { retry_after }) => {
            format!("deny {}", written(retry_after))
        }
        Expected::Outcome(Outcome::Never) => "never".to_owned(),
        Expected::Refused(refused) => format!("refused ({refused})"),
        Expected::Nothing(why) => format!("{why:?}"),
    }
}
