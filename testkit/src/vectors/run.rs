//! Running a suite against a subject, to the first answer that is not what the file says.
//!
//! Must not know: how files are written, how subjects decide.

use std::collections::HashMap;
use std::fmt;

use tollgate_core::limit::{LimitReply, Op, OpError};
use tollgate_core::{Outcome, Receipt, Timestamp};

use super::Suite;
use super::op::VectorOp;
use super::parse::{ExpectedReply, LedgerStep, written};
use super::plan::{Expectation, PlannedAction, PlannedCase, PlannedPart, PlannedStep};
use super::subject::{Subject, SubjectDecision, SubjectRequest, SubjectReservation};

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
struct SubjectReply {
    answer: ExpectedReply,
    details: Option<LimitReply>,
}

impl SubjectReply {
    fn decided(answer: LimitReply) -> Self {
        Self {
            answer: ExpectedReply::Outcome(answer.outcome),
            details: Some(answer),
        }
    }

    fn refused(refused: OpError) -> Self {
        Self {
            answer: ExpectedReply::Refused(refused),
            details: None,
        }
    }

    fn reserved(reserved: SubjectReservation) -> Self {
        match reserved {
            Ok(answer) => Self::decided(answer),
            Err(LedgerStep::Refused(refused)) => Self::refused(refused),
            Err(why) => Self {
                answer: ExpectedReply::Nothing(why),
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
    case: &PlannedCase,
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
    fn step(&mut self, step: &PlannedStep, is_last: bool) -> Result<(), String> {
        let now = step.now;
        match &step.action {
            PlannedAction::Ask(part) => {
                let said = match self.decide(now, std::slice::from_ref(part))? {
                    Ok(decision) => {
                        let answer = decision.answers.first().ok_or("no answer at all")?;
                        SubjectReply::decided(*answer)
                    }
                    Err(refused) => SubjectReply::refused(refused),
                };
                self.compare(part, &said, is_last)
            }
            PlannedAction::Together(parts, verdict, binding) => {
                let decision = self.decide(now, parts)?;
                self.compare_all(parts, *verdict, *binding, decision, is_last)
            }
            PlannedAction::Requota { of, old, new } => {
                let key = self.key(of);
                self.subject.replace(now, &key, old, new);
                Ok(())
            }
            PlannedAction::Reserve(part, id, terms) => {
                let (key, op) = (self.key(&part.of), self.op(part)?);
                let ask = SubjectRequest {
                    key: &key,
                    limit: &part.limit,
                    op,
                };
                let said = SubjectReply::reserved(self.subject.reserve(now, terms, *id, ask));
                self.compare(part, &said, is_last)
            }
            PlannedAction::Close(part, id, terms, actual) => {
                let (key, op) = (self.key(&part.of), self.op(part)?);
                let ask = SubjectRequest {
                    key: &key,
                    limit: &part.limit,
                    op,
                };
                let said =
                    SubjectReply::reserved(self.subject.close(now, terms, *id, ask, *actual));
                self.compare(part, &said, is_last)
            }
        }
    }

    fn decide(
        &mut self,
        now: Timestamp,
        parts: &[PlannedPart],
    ) -> Result<Result<SubjectDecision, OpError>, String> {
        let keys: Vec<String> = parts.iter().map(|part| self.key(&part.of)).collect();
        let mut asks = Vec::with_capacity(parts.len());
        for (part, key) in parts.iter().zip(&keys) {
            asks.push(SubjectRequest {
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

    fn op(&self, part: &PlannedPart) -> Result<Op, String> {
        match &part.op {
            VectorOp::Plain(op) => Ok(*op),
            VectorOp::Settle { receipt_of, actual } => {
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
        parts: &[PlannedPart],
        verdict: ExpectedReply,
        binding: Option<Option<usize>>,
        decision: Result<SubjectDecision, OpError>,
        is_last: bool,
    ) -> Result<(), String> {
        let decision = match decision {
            Ok(decision) => decision,
            Err(refused) => {
                return differ(
                    "answer",
                    &show(verdict),
                    &show(ExpectedReply::Refused(refused)),
                );
            }
        };
        differ(
            "answer",
            &show(verdict),
            &show(ExpectedReply::Outcome(decision.outcome)),
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
            self.compare(part, &SubjectReply::decided(answer), is_last)
                .map_err(|what| format!("{}: {what}", part.of))?;
        }
        Ok(())
    }

    /// Compares an answer with what the file says, and keeps the receipt for later steps. A row of equal steps is
    /// compared in what each answers, and only after the last in where the limit stands.
    fn compare(
        &mut self,
        part: &PlannedPart,
        said: &SubjectReply,
        is_last: bool,
    ) -> Result<(), String> {
        let Expectation {
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
fn show(answer: ExpectedReply) -> String {
    match answer {
        ExpectedReply::Outcome(Outcome::Allow) => "allow".to_owned(),
        ExpectedReply::Outcome(Outcome::Wait(wait)) => format!("wait {}", written(wait)),
        ExpectedReply::Outcome(Outcome::Deny { retry_after }) => {
            format!("deny {}", written(retry_after))
        }
        ExpectedReply::Outcome(Outcome::Never) => "never".to_owned(),
        ExpectedReply::Refused(refused) => format!("refused ({refused})"),
        ExpectedReply::Nothing(why) => format!("{why:?}"),
    }
}
