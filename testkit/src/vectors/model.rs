//! A vector file as it is written: cases, their quotas, and traces of steps. Unknown fields are errors.
//!
//! Must not know: how a step is carried out. What a step means is `plan.rs`, carrying it out is `run.rs`.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_saphyr::Spanned;
use tollgate_core::Nanos;

use super::parse::{self, ExpectedReply, StepTime};
use super::quota::{self, QuotaSpec};

/// One file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct VectorFile {
    /// What the cases have in common, for people.
    #[serde(rename = "about")]
    pub _about: String,
    /// The cases, each on fresh state.
    pub cases: Vec<Spanned<VectorCase>>,
}

/// One case: quotas and a trace.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct VectorCase {
    /// A sentence that the case proves.
    pub name: String,
    /// Why it matters or where its numbers come from, for people.
    #[serde(rename = "why")]
    pub _why: Option<String>,
    /// The quota, if there is one.
    pub limit: Option<Spanned<QuotaSpec>>,
    /// The quotas by name, if there are several.
    #[serde(default)]
    pub limits: BTreeMap<String, Spanned<QuotaSpec>>,
    /// How reservations are kept.
    pub reservations: Option<ReservationSpec>,
    /// The trace, in the order in which it happens.
    pub steps: Vec<Spanned<VectorStep>>,
}

/// How long reservations stay open, how long they are remembered after that, and how many there may be.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReservationSpec {
    /// Time in which a reservation can be settled downwards or cancelled.
    #[serde(deserialize_with = "quota::span")]
    pub hold: Nanos,
    /// Time for which an expired one is still known.
    #[serde(deserialize_with = "quota::span")]
    pub memory: Nanos,
    /// The most that are remembered at once.
    pub most: usize,
}

/// One step, or one part of a step on several limits: exactly one operation, and what it must answer.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct VectorStep {
    /// When; the instant of the step before if left out.
    #[serde(default, deserialize_with = "when")]
    pub at: Option<StepTime>,
    /// On which of several limits.
    pub of: Option<String>,
    /// A name for the charge that this step makes.
    pub label: Option<String>,
    /// How often in a row; each must answer the same.
    pub times: Option<u32>,

    /// Spend this much or nothing.
    pub spend: Option<u64>,
    /// Spend as much of this as there is.
    pub up_to: Option<u64>,
    /// Spend this much whatever is there.
    pub charge: Option<u64>,
    /// Correct an earlier charge.
    pub settle: Option<Settle>,
    /// Give back the charge of this label.
    pub refund: Option<String>,
    /// Give back units without a receipt.
    pub credit: Option<u64>,
    /// Hold places.
    pub acquire: Option<Acquire>,
    /// Extend the lease of this id.
    pub renew: Option<u64>,
    /// End the lease of this id.
    pub release: Option<u64>,
    /// Ask without changing anything.
    pub peek: Option<bool>,
    /// Replace the quota; the state stays.
    pub requota: Option<QuotaSpec>,
    /// Charge under an id.
    pub reserve: Option<Reserve>,
    /// Give back the reservation of this id.
    pub cancel: Option<u64>,
    /// Ask several limits at once, all or nothing.
    pub together: Option<Vec<Spanned<Self>>>,

    /// The answer.
    #[serde(default, deserialize_with = "expected")]
    pub expect: Option<ExpectedReply>,
    /// What is there afterwards.
    pub remaining: Option<u64>,
    /// Time until it is as if never used.
    #[serde(default, deserialize_with = "quota::maybe_span")]
    pub reset_after: Option<Nanos>,
    /// What was charged.
    pub charged: Option<u64>,
    /// Which of several limits decided; `none` if all simply allow.
    pub binding: Option<String>,
}

/// What is corrected, and to what: a charge by its label, or a reservation by its id.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Settle {
    /// The label of the step that charged.
    pub receipt_of: Option<String>,
    /// The id of the reservation.
    pub reservation: Option<u64>,
    /// What it turned out to cost.
    pub actual: u64,
}

/// Places held under an id.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Acquire {
    /// Who holds them.
    pub id: u64,
    /// How many.
    pub weight: u64,
}

/// A charge under an id.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Reserve {
    /// Its name.
    pub id: u64,
    /// How much.
    pub cost: u64,
}

fn when<'de, D: serde::Deserializer<'de>>(input: D) -> Result<Option<StepTime>, D::Error> {
    quota::word(input, parse::when).map(Some)
}

fn expected<'de, D: serde::Deserializer<'de>>(input: D) -> Result<Option<ExpectedReply>, D::Error> {
    quota::word(input, parse::expected).map(Some)
}
