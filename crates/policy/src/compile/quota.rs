//! A quota as the file says it becomes core's, window by window; what core refuses becomes a problem at its place.
//!
//! Must not know: limits, tiers, keys. Whoever has several quotas for one state brings them together.

use tollgate_core::limit::Limit;
use tollgate_core::{Nanos, QuotaUnit, UtcOffset, Window};

use super::problem::problem;
use super::quota_errors::{concurrency_error, rate_error};
use crate::attributes::Attribute;
use crate::humanize::format_number;
use crate::model::{Algorithm, Amount, Burst, ComputedRate, Period, QuotaSpec, RateSpec};
use crate::rules::{AlgorithmSpec, QuotaBuilder};
use crate::source::{Diagnostic, Located, SourceLocation};

/// The fastest rate that whole nanoseconds can always express within 0.1 %: an interval of a microsecond.
const MIN_EXACT_INTERVAL: u64 = 1_000;

/// What a quota grants, ready to be built.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum QuotaGrant {
    /// One number per window, all of which must admit.
    Windows(Vec<WindowGrant>),
    /// A number that is computed for each request.
    Computed(ComputedGrant),
    /// No limit.
    Unlimited,
}

/// One window and its number.
#[derive(Clone, Copy, Debug)]
pub struct WindowGrant {
    /// Where the file says it.
    pub location: SourceLocation,
    /// How it is counted.
    pub builder: QuotaBuilder,
    /// How many.
    pub units: u64,
    /// Whether the file said `month` or `year`.
    pub period: Option<Period>,
}

/// A number that each request's attribute adds to.
#[derive(Clone, Debug)]
pub struct ComputedGrant {
    /// Where the file says it.
    pub location: SourceLocation,
    /// How it is counted.
    pub builder: QuotaBuilder,
    /// What everyone gets.
    pub base: u64,
    /// What each unit of the attribute adds.
    pub each: u64,
    /// The attribute.
    pub times: Attribute,
    /// The most that anyone gets.
    pub at_most: u64,
    /// The period as the file says it.
    pub period: Period,
}

/// The quota's windows as core's limits: the number that the file says, or for a computed one what everyone gets.
/// Empty where there is no limit.
///
/// # Errors
/// Everything that core refuses, where the file says it.
pub fn build_limits(
    quota: &Located<QuotaSpec>,
    overdraft: u64,
) -> Result<Vec<Limit>, Vec<Diagnostic>> {
    let pairs = match compile_quota(quota, overdraft)? {
        QuotaGrant::Windows(windows) => windows.iter().map(|w| (w.builder, w.units)).collect(),
        QuotaGrant::Computed(computed) => vec![(computed.builder, computed.base)],
        QuotaGrant::Unlimited => Vec::new(),
    };
    // Everything was built once already, so nothing is lost where a window cannot be built again.
    Ok(pairs
        .into_iter()
        .filter_map(|(formula, units)| formula.build(units).ok())
        .collect())
}

/// What is wrong with a quota, without building it.
#[must_use]
pub fn quota_diagnostics(quota: &Located<QuotaSpec>, overdraft: u64) -> Vec<Diagnostic> {
    compile_quota(quota, overdraft).err().unwrap_or_default()
}

/// The quota, checked: every number in it can be built.
///
/// # Errors
/// Everything that core refuses, where the file says it.
pub fn compile_quota(
    quota: &Located<QuotaSpec>,
    overdraft: u64,
) -> Result<QuotaGrant, Vec<Diagnostic>> {
    let spec = &quota.value;
    let mut problems = Vec::new();
    if let Some(burst) = &spec.burst
        && !has_burst(spec)
    {
        problems.push(problem(
            burst.location,
            &format!(
                "`burst` is only for {}: everything else admits its whole number at once",
                Algorithm::names_with_burst()
            ),
            "leave `burst` out, or choose `algorithm: token_bucket`",
        ));
    }
    let result = match &spec.amount {
        Amount::Rates(rates) => compile_windows(quota, rates, overdraft, &mut problems),
        Amount::Concurrency {
            permits: places,
            lease,
        } => compile_concurrency(quota, *places, *lease, &mut problems),
        Amount::Computed(computed) => {
            self::compile_computed(quota, computed, overdraft, &mut problems)
        }
        Amount::Unlimited => Some(QuotaGrant::Unlimited),
    };
    match result {
        Some(granted) if problems.is_empty() => Ok(granted),
        _ => Err(problems),
    }
}

fn has_burst(spec: &QuotaSpec) -> bool {
    spec.algorithm.has_burst()
        && !matches!(spec.amount, Amount::Concurrency { .. } | Amount::Unlimited)
}

fn compile_windows(
    quota: &Located<QuotaSpec>,
    rates: &[Located<RateSpec>],
    overdraft: u64,
    problems: &mut Vec<Diagnostic>,
) -> Option<QuotaGrant> {
    if rates.is_empty() {
        problems.push(problem(
            quota.location,
            "`rate` lists no rate",
            "say one, such as `rate: 100/min`",
        ));
        return None;
    }
    // The burst belongs to the shortest period: it is what bounds how much passes at once. A longer window beside it
    // that could only hold the same burst would never reach its own number.
    let shortest = rates
        .iter()
        .enumerate()
        .min_by_key(|(_, rate)| rate.value.period.fixed_length())
        .map(|(index, _)| index);
    let mut granted = Vec::with_capacity(rates.len());
    for (index, rate) in rates.iter().enumerate() {
        let Some(shape) = algorithm_spec(quota, rate.location, rate.value.period, problems) else {
            continue;
        };
        let mut formula = QuotaBuilder::new(shape, quota.value.unit);
        formula.overdraft = overdraft;
        formula.burst = burst_for(&quota.value, shortest == Some(index));
        let formula = formula.with_blocks_for(rate.value.units);
        match formula.build(rate.value.units) {
            Ok(_) => granted.push(WindowGrant {
                location: rate.location,
                builder: formula,
                units: rate.value.units,
                period: calendar_period(rate.value.period),
            }),
            Err(error) => problems.push(rate_error(quota, rate, &error)),
        }
    }
    Some(QuotaGrant::Windows(granted))
}

fn burst_for(spec: &QuotaSpec, is_shortest: bool) -> Option<Burst> {
    let burst = spec.burst.as_ref().map(|burst| burst.value);
    burst.filter(|_| is_shortest && has_burst(spec))
}

const fn calendar_period(period: Period) -> Option<Period> {
    match period {
        Period::Span(_) => None,
        Period::Month | Period::Year => Some(period),
    }
}

fn compile_concurrency(
    quota: &Located<QuotaSpec>,
    places: u64,
    lease: Nanos,
    problems: &mut Vec<Diagnostic>,
) -> Option<QuotaGrant> {
    let formula = QuotaBuilder::new(AlgorithmSpec::Concurrency(lease), quota.value.unit);
    match formula.build(places) {
        Ok(_) => Some(QuotaGrant::Windows(vec![WindowGrant {
            location: quota.location,
            builder: formula,
            units: places,
            period: None,
        }])),
        Err(error) => {
            problems.push(concurrency_error(quota, lease, &error));
            None
        }
    }
}

fn compile_computed(
    quota: &Located<QuotaSpec>,
    computed: &ComputedRate,
    overdraft: u64,
    problems: &mut Vec<Diagnostic>,
) -> Option<QuotaGrant> {
    let (base, each, most) = (&computed.base, &computed.each, &computed.at_most);
    for other in [each, most] {
        if other.value.period != base.value.period {
            problems.push(problem(
                other.location,
                "a computed rate counts everything over one period",
                "write the same period in all three places, as in `5000/h + 50/h × claim.repos, at most 12500/h`",
            ));
        }
    }
    if most.value.units < base.value.units {
        problems.push(problem(
            most.location,
            &format!(
                "`at most` is {}, below the {} that everyone gets",
                format_number(most.value.units),
                format_number(base.value.units)
            ),
            "make it at least as much as the base",
        ));
    }
    let shape = algorithm_spec(quota, base.location, base.value.period, problems)?;
    let mut formula = QuotaBuilder::new(shape, quota.value.unit);
    formula.overdraft = overdraft;
    formula.burst = burst_for(&quota.value, true);
    let formula = formula.with_blocks_for(most.value.units);
    for rate in [base, most] {
        if let Err(error) = formula.build(rate.value.units) {
            problems.push(rate_error(quota, rate, &error));
        }
    }
    if let Some(period) = formula.span()
        && formula.spec.algorithm().has_burst()
        && period.as_nanos().saturating_mul(formula.block) / most.value.units.max(1)
            < MIN_EXACT_INTERVAL
        && formula.unit == QuotaUnit::Requests
    {
        problems.push(problem(
            most.location,
            "a computed rate above 1,000,000 a second passes through rates that whole nanoseconds cannot express within 0.1 %",
            "lower `at most`, or count `unit: bytes` or `unit: tokens`, which are charged in blocks",
        ));
    }
    Some(QuotaGrant::Computed(ComputedGrant {
        location: quota.location,
        builder: formula,
        base: base.value.units,
        each: each.value.units,
        times: computed.times.clone(),
        at_most: most.value.units,
        period: base.value.period,
    }))
}

/// The rule that counts a rate over this period.
fn algorithm_spec(
    quota: &Located<QuotaSpec>,
    place: SourceLocation,
    period: Period,
    problems: &mut Vec<Diagnostic>,
) -> Option<AlgorithmSpec> {
    let algorithm = quota.value.algorithm;
    if algorithm.is_concurrency() {
        problems.push(problem(
            place,
            "`algorithm: concurrency` counts how many at once, not how many per period",
            "say `concurrency: 20` instead of `rate`, or choose another algorithm",
        ));
    }
    algorithm.spec(period, || window(quota, period, problems))
}

/// Where the windows of a period begin and end: weeks, months and years with the calendar, days too if they are to turn at
/// another midnight than UTC's, and everything else on multiples of its length since 1970.
fn window(
    quota: &Located<QuotaSpec>,
    period: Period,
    problems: &mut Vec<Diagnostic>,
) -> Option<Window> {
    use tollgate_core::Calendar;
    let minutes = quota.value.utc_offset_minutes;
    let offset = match UtcOffset::from_minutes(minutes) {
        Ok(offset) => offset,
        Err(_beyond_the_earth) => {
            problems.push(problem(
                quota.location,
                &format!("`utc_offset` is {minutes} minutes, and no place on earth is more than 14 hours from UTC"),
                "write an offset from \"-14:00\" to \"+14:00\"",
            ));
            return None;
        }
    };
    let week = Nanos::from_secs(7 * 86_400);
    Some(match period {
        Period::Month => Window::Calendar(Calendar::Month, offset),
        Period::Span(length) if length == Nanos::DAY && minutes != 0 => {
            Window::Calendar(Calendar::Day, offset)
        }
        // 1970 began on a Thursday, which is when nobody's week turns.
        Period::Span(length) if length == week => Window::Calendar(Calendar::Week, offset),
        Period::Span(length) => Window::Epoch(length),
        Period::Year => Window::Calendar(Calendar::Year, offset),
    })
}

#[cfg(test)]
mod tests;
