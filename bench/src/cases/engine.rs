//! The whole way of a request: found, keyed, decided on by the store in memory, and a verdict made of it.
//!
//! The clock stands still, and every limit applies to the request. Must not know: how any of it is done.

use std::error::Error;
use std::hint::black_box;

use tollgate_core::Nanos;
use tollgate_engine::{CheckOptions, Engine};
use tollgate_policy::attributes::Attributes;
use tollgate_policy::model::{Amount, LimitRule, Period, Policy, RateSpec};
use tollgate_policy::rules::Rules;
use tollgate_store::{ManualClock, MemoryStore};

use super::matching::{MatchRequest, limit};
use super::{CaseRun, NOW};
use crate::measure::measured_section;

/// Decides on one request under so many buckets of so many units an hour: with many of them it is allowed throughout,
/// with one it is denied after the first, which is not counted.
pub(super) fn decide(times: u64, limits: usize, units: u64) -> CaseRun {
    let engine = engine(limits, units)?;
    let request = MatchRequest::of(0);
    if !engine.decide(&request).is_admitted() {
        return Err("the first request was denied".into());
    }
    measured_section(times, || black_box(&engine).decide(black_box(&request)));
    Ok(())
}

/// Decides on a pipeline of sixteen requests under one bucket, each with the same key.
pub(super) fn decide_pipeline(times: u64) -> CaseRun {
    let engine = engine(1, 1_000_000_000)?;
    let request = MatchRequest::of(0);
    let pipeline = || {
        let command = (
            black_box(&request) as &dyn Attributes,
            CheckOptions::default(),
        );
        std::iter::repeat_n(command, 16)
    };
    let mut admitted = 0;
    engine.check_each(pipeline(), |verdict| {
        admitted += u32::from(verdict.is_admitted());
    });
    if admitted != 16 {
        return Err(format!("{admitted} of 16 requests were admitted").into());
    }
    measured_section(times, || {
        black_box(&engine).check_each(pipeline(), |verdict| {
            black_box(verdict);
        });
    });
    Ok(())
}

/// Decides on one request under one bucket with a candidate beside it, which agrees throughout.
pub(super) fn decide_with_candidate(times: u64) -> CaseRun {
    let hour = |units| RateSpec {
        units,
        period: Period::Span(Nanos::HOUR),
    };
    let mut tried = limit(0, Vec::new());
    tried.quota.value.amount = Amount::Rates(vec![hour(1_000_000_000).into()]);
    let mut candidate = tried.quota.clone();
    candidate.value.amount = Amount::Rates(vec![hour(2_000_000_000).into()]);
    tried.candidate = Some(candidate);
    let engine = engine_of(vec![tried])?;
    let request = MatchRequest::of(0);
    if !engine.decide(&request).is_admitted() {
        return Err("the first request was denied".into());
    }
    measured_section(times, || black_box(&engine).decide(black_box(&request)));
    Ok(())
}

pub(super) fn engine(
    limits: usize,
    units: u64,
) -> Result<Engine<MemoryStore<ManualClock>>, Box<dyn Error>> {
    let rate = RateSpec {
        units,
        period: Period::Span(Nanos::HOUR),
    };
    let with_rate = |n| {
        let mut limit = limit(n, Vec::new());
        limit.quota.value.amount = Amount::Rates(vec![rate.into()]);
        limit
    };
    engine_of((0..limits).map(with_rate).collect())
}

fn engine_of(limits: Vec<LimitRule>) -> Result<Engine<MemoryStore<ManualClock>>, Box<dyn Error>> {
    let policy = Policy {
        limits,
        ..Policy::default()
    };
    let rules = Rules::compile(&policy, [7; 16]).map_err(|problems| format!("{problems:?}"))?;
    let store = MemoryStore::with_clock(100_000, ManualClock::at(NOW))?;
    Ok(Engine::new(rules, store)?)
}
