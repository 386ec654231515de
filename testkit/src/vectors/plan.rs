//! From what a file says to what is to be done: one operation per step, names resolved, quotas compiled.
//!
//! Everything that can be wrong with a file is found here, before anything runs, with the line it stands on.
//!
//! Must not know: stores, answers.

use std::collections::{BTreeMap, BTreeSet};

use serde_saphyr::Spanned;
use tollgate_core::limit::{Limit, Op};
use tollgate_core::reservation::{ReservationId, ReservationOptions};
use tollgate_core::{Nanos, Timestamp};

use super::model::{self, Settle};
use super::op::{VectorOp, has_details, operation, operations};
use super::parse::{ExpectedReply, StepTime};
use super::quota::QuotaSpec;

/// The name of the limit in a case that has only one.
const ONLY: &str = "limit";

/// Something wrong with a file, and where.
#[derive(Debug)]
pub(super) struct PlanError {
    pub line: u64,
    pub text: String,
}

/// One case, ready to run.
#[derive(Debug)]
pub(super) struct PlannedCase {
    pub line: u64,
    pub name: String,
    pub steps: Vec<PlannedStep>,
}

/// One step, ready to run.
#[derive(Debug)]
pub(super) struct PlannedStep {
    pub line: u64,
    pub now: Timestamp,
    pub times: u32,
    pub action: PlannedAction,
}

/// What a step does.
#[derive(Debug)]
pub(super) enum PlannedAction {
    /// Asks one limit.
    Ask(PlannedPart),
    /// Asks several, all or nothing: the parts, the verdict, and the position of the limit that binds if that is said.
    Together(Vec<PlannedPart>, ExpectedReply, Option<Option<usize>>),
    /// Replaces the quota of a limit.
    Requota { of: String, old: Limit, new: Limit },
    /// Charges under an id.
    Reserve(PlannedPart, ReservationId, ReservationOptions),
    /// Settles a reservation at an amount, or cancels it.
    Close(PlannedPart, ReservationId, ReservationOptions, Option<u64>),
}

/// One limit's part in a step.
#[derive(Debug)]
pub(super) struct PlannedPart {
    pub of: String,
    pub limit: Limit,
    pub op: VectorOp,
    pub label: Option<String>,
    pub expect: Expectation,
}

/// What an answer must be. What is not said is not compared.
#[derive(Debug)]
pub(super) struct Expectation {
    pub answer: ExpectedReply,
    pub remaining: Option<u64>,
    pub reset_after: Option<Nanos>,
    pub charged: Option<u64>,
}

/// Checks a case and works out what each step does.
pub(super) fn case(written: Spanned<model::VectorCase>) -> Result<PlannedCase, PlanError> {
    let line = written.referenced.line();
    let case = written.value;
    let problem = |text: &str| PlanError {
        line,
        text: text.to_owned(),
    };
    let mut limits = BTreeMap::new();
    let only = case.limit.into_iter().map(|limit| (ONLY.to_owned(), limit));
    for (name, quota) in only.chain(case.limits) {
        let at = quota.referenced.line();
        let limit = quota
            .value
            .compile()
            .map_err(|text| PlanError { line: at, text })?;
        if limits.insert(name, limit).is_some() {
            return Err(problem("`limit` and `limits` name the same limit"));
        }
    }
    if limits.is_empty() {
        return Err(problem("a case needs `limit` or `limits`"));
    }
    if case.steps.is_empty() {
        return Err(problem("a case without steps proves nothing"));
    }
    let mut planner = Planner {
        limits,
        labels: BTreeSet::new(),
        terms: case.reservations.map(|terms| ReservationOptions {
            hold: terms.hold,
            retention: terms.memory,
            max_records: terms.most,
        }),
        now: None,
    };
    let mut steps = Vec::with_capacity(case.steps.len());
    for step in case.steps {
        let line = step.referenced.line();
        let step = planner
            .step(line, step.value)
            .map_err(|text| PlanError { line, text })?;
        steps.push(step);
    }
    Ok(PlannedCase {
        line,
        name: case.name,
        steps,
    })
}

/// What is known so far while the steps of a case are read in order.
struct Planner {
    limits: BTreeMap<String, Limit>,
    labels: BTreeSet<String>,
    terms: Option<ReservationOptions>,
    now: Option<u64>,
}

impl Planner {
    fn step(&mut self, line: u64, mut step: model::VectorStep) -> Result<PlannedStep, String> {
        let now = match (step.at.take(), self.now) {
            (Some(StepTime::At(now)), _) => now,
            (Some(StepTime::Later(span)), Some(now)) => now
                .checked_add(span.as_nanos())
                .ok_or("at: the clock cannot go beyond 2^64 ns")?,
            (Some(StepTime::Earlier(span)), Some(now)) => now
                .checked_sub(span.as_nanos())
                .ok_or("at: the clock cannot go back beyond 1970")?,
            (None, Some(now)) => now,
            (_, None) => return Err("at: the first step needs an absolute instant".to_owned()),
        };
        self.now = Some(now);
        let times = step.times.take().unwrap_or(1);
        if times == 0 {
            return Err("times: a step that never happens proves nothing".to_owned());
        }
        let action = self.action(step)?;
        Ok(PlannedStep {
            line,
            now: Timestamp::from_nanos(now),
            times,
            action,
        })
    }

    fn action(&mut self, mut step: model::VectorStep) -> Result<PlannedAction, String> {
        if let Some(parts) = step.together.take() {
            return self.together(step, parts);
        }
        if let Some(spec) = step.requota.take() {
            return self.requota(&step, &spec);
        }
        if step.binding.is_some() {
            return Err("binding: only a step on several limits has one".to_owned());
        }
        if let Some(reserve) = step.reserve.take() {
            let id = ReservationId(u128::from(reserve.id));
            let part = self.part_with(step, VectorOp::Plain(Op::Spend(reserve.cost)))?;
            return Ok(PlannedAction::Reserve(part, id, self.terms()?));
        }
        let closed = match (&step.settle, step.cancel.take()) {
            (None, None)
            | (
                Some(Settle {
                    reservation: None, ..
                }),
                None,
            ) => None,
            (None, Some(id)) => Some((id, None)),
            (
                Some(Settle {
                    receipt_of: None,
                    reservation: Some(id),
                    actual,
                }),
                None,
            ) => Some((*id, Some(*actual))),
            _ => return Err("a step closes one reservation or settles one receipt".to_owned()),
        };
        if let Some((id, actual)) = closed {
            step.settle = None;
            let part = self.part_with(step, VectorOp::Plain(Op::Spend(0)))?;
            return Ok(PlannedAction::Close(
                part,
                ReservationId(u128::from(id)),
                self.terms()?,
                actual,
            ));
        }
        self.part(step).map(PlannedAction::Ask)
    }

    fn together(
        &mut self,
        step: model::VectorStep,
        parts: Vec<Spanned<model::VectorStep>>,
    ) -> Result<PlannedAction, String> {
        let mut planned = Vec::with_capacity(parts.len());
        for part in parts {
            let line = part.referenced.line();
            let has_own_time = part.value.at.is_some() || part.value.times.is_some();
            if has_own_time || part.value.binding.is_some() {
                return Err(format!(
                    "line {line}: `at`, `times`, `binding` belong to the whole step"
                ));
            }
            planned.push(
                self.part(part.value)
                    .map_err(|text| format!("line {line}: {text}"))?,
            );
        }
        let binding = match step.binding.as_deref() {
            None => None,
            Some("none") => Some(None),
            Some(name) => {
                let position = planned.iter().position(|part| part.of == name);
                Some(Some(
                    position.ok_or_else(|| format!("binding: `{name}` is not asked"))?,
                ))
            }
        };
        let expect = step.expect.ok_or("expect: is missing")?;
        let rest = model::VectorStep {
            binding: None,
            expect: None,
            ..step
        };
        if planned.is_empty() || operations(&rest) > 0 || has_details(&rest) {
            return Err("together: has parts, `expect` and `binding`, and nothing else".to_owned());
        }
        Ok(PlannedAction::Together(planned, expect, binding))
    }

    fn requota(
        &mut self,
        step: &model::VectorStep,
        spec: &QuotaSpec,
    ) -> Result<PlannedAction, String> {
        if operations(step) > 0 || has_details(step) || step.expect.is_some() {
            return Err("requota: has no answer; ask in the next step".to_owned());
        }
        let (of, old) = self.limit(step.of.as_deref())?;
        let new = spec.replacing(&old)?;
        self.limits.insert(of.clone(), new);
        Ok(PlannedAction::Requota { of, old, new })
    }

    fn part(&mut self, mut step: model::VectorStep) -> Result<PlannedPart, String> {
        let (_, limit) = self.limit(step.of.as_deref())?;
        let count = operations(&step);
        if count != 1 {
            return Err(format!(
                "a step has exactly one operation, this one has {count}"
            ));
        }
        let op = operation(&mut step, &limit)?;
        if let VectorOp::Settle { receipt_of, .. } = &op
            && !self.labels.contains(receipt_of)
        {
            return Err(format!("no earlier step has the label `{receipt_of}`"));
        }
        self.part_with(step, op)
    }

    fn part_with(&mut self, step: model::VectorStep, op: VectorOp) -> Result<PlannedPart, String> {
        if operations(&step) > 0 {
            return Err("a step has exactly one operation".to_owned());
        }
        let (of, limit) = self.limit(step.of.as_deref())?;
        if let Some(label) = &step.label
            && !self.labels.insert(label.clone())
        {
            return Err(format!("label: `{label}` is taken"));
        }
        let expect = Expectation {
            answer: step.expect.ok_or("expect: is missing")?,
            remaining: step.remaining,
            reset_after: step.reset_after,
            charged: step.charged,
        };
        Ok(PlannedPart {
            of,
            limit,
            op,
            label: step.label,
            expect,
        })
    }

    fn limit(&self, of: Option<&str>) -> Result<(String, Limit), String> {
        let name = of.unwrap_or(ONLY);
        match self.limits.get(name) {
            Some(limit) => Ok((name.to_owned(), *limit)),
            None => Err(format!("of: the case has no limit `{name}`")),
        }
    }

    fn terms(&self) -> Result<ReservationOptions, String> {
        self.terms
            .ok_or_else(|| "the case does not say how `reservations` are kept".to_owned())
    }
}
