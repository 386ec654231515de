//! Compiles a quota of a policy to core quotas, one per window. Errors of core become diagnostics with a location.
//!
//! Must not know: limits, tiers, keys. `shared_states` combines several quotas into one state.

use tollgate_core::limit::Limit;
use tollgate_core::{Nanos, QuotaUnit, UtcOffset, Window};

use super::quota_errors::{concurrency_error, rate_error};
use crate::attributes::Attribute;
use crate::humanize::format_number;
use crate::model::{
    Algorithm, Amount, Burst, ComputedRate, Period, QuotaDetails, QuotaSpec, RateSpec, WindowStart,
};
use crate::rules::{AlgorithmSpec, QuotaBuilder};
use crate::source::{Diagnostic, Located, SourceLocation};

/// The shortest interval that whole nanoseconds express within 0.1 % for every rate: one microsecond.
const MIN_EXACT_INTERVAL: u64 = 1_000;

/// What a quota grants. Every number in it can be built.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum QuotaGrant {
    /// One or more windows, all of which must admit.
    Windows(Vec<WindowGrant>),
    /// A number that is computed per request.
    Computed(ComputedGrant),
    /// No limit.
    Unlimited,
}

/// One window and its number of units.
#[derive(Clone, Copy, Debug)]
pub struct WindowGrant {
    /// Its location in the file.
    pub location: SourceLocation,
    /// The builder of its core quota.
    pub builder: QuotaBuilder,
    /// How many.
    pub units: u64,
    /// The calendar period, if the file has `month` or `year`.
    pub period: Option<Period>,
}

/// A number that an attribute of the request adds to.
#[derive(Clone, Debug)]
pub struct ComputedGrant {
    /// Its location in the file.
    pub location: SourceLocation,
    /// The builder of its core quota.
    pub builder: QuotaBuilder,
    /// What everyone gets.
    pub base: u64,
    /// The additional units per unit of the attribute.
    pub each: u64,
    /// The attribute.
    pub times: Attribute,
    /// The maximum number of units.
    pub at_most: u64,
    /// The period in the file.
    pub period: Period,
}

/// Builds core's limits, one per window. For a computed quota the number is the base. Empty if there is no limit.
///
/// # Errors
/// Everything that core rejects, with its location.
pub fn build_limits(
    quota: &Located<QuotaSpec>,
    overdraft: u64,
) -> Result<Vec<Limit>, Vec<Diagnostic>> {
    let pairs = match compile_quota(quota, overdraft)? {
        QuotaGrant::Windows(windows) => windows.iter().map(|w| (w.builder, w.units)).collect(),
        QuotaGrant::Computed(computed) => vec![(computed.builder, computed.base)],
        QuotaGrant::Unlimited => Vec::new(),
    };
    // `compile_quota` has built every window once, so none of these builds fails.
    Ok(pairs
        .into_iter()
        .filter_map(|(builder, units)| builder.build(units).ok())
        .collect())
}

/// The diagnostics of a quota; empty if it is valid.
#[must_use]
pub fn quota_diagnostics(quota: &Located<QuotaSpec>, overdraft: u64) -> Vec<Diagnostic> {
    compile_quota(quota, overdraft).err().unwrap_or_default()
}

/// Compiles and checks a quota: every number in it can be built.
///
/// # Errors
/// Everything that core rejects, with its location.
pub fn compile_quota(
    quota: &Located<QuotaSpec>,
    overdraft: u64,
) -> Result<QuotaGrant, Vec<Diagnostic>> {
    let spec = &quota.value;
    let mut diagnostics = Vec::new();
    if let Some(burst) = &spec.burst
        && !has_burst(spec)
    {
        diagnostics.push(Diagnostic::new(
            burst.location,
            format!("`burst` is only for {}", Algorithm::names_with_burst()),
            "leave `burst` out, or use `algorithm: token_bucket`",
        ));
    }
    check_details(quota, &mut diagnostics);
    let result = match &spec.amount {
        Amount::Rates(rates) => compile_windows(quota, rates, overdraft, &mut diagnostics),
        Amount::Concurrency { permits, lease } => {
            compile_concurrency(quota, *permits, *lease, &mut diagnostics)
        }
        Amount::Computed(computed) => {
            self::compile_computed(quota, computed, overdraft, &mut diagnostics)
        }
        Amount::Unlimited => Some(QuotaGrant::Unlimited),
    };
    match result {
        Some(grants) if diagnostics.is_empty() => Ok(grants),
        _ => Err(diagnostics),
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
    diagnostics: &mut Vec<Diagnostic>,
) -> Option<QuotaGrant> {
    if rates.is_empty() {
        diagnostics.push(Diagnostic::new(
            quota.location,
            "`rate` is an empty list",
            "write a rate, such as `rate: 100/min`",
        ));
        return None;
    }
    // The burst applies to the window with the shortest period, because that window bounds what passes at once. With
    // the same burst, a longer window could never reach its own number.
    let shortest = rates
        .iter()
        .enumerate()
        .min_by_key(|(_, rate)| rate.value.period.fixed_length())
        .map(|(index, _)| index);
    let mut grants = Vec::with_capacity(rates.len());
    for (index, rate) in rates.iter().enumerate() {
        let Some(spec) = algorithm_spec(quota, rate.location, rate.value.period, diagnostics)
        else {
            continue;
        };
        let mut builder = QuotaBuilder::new(spec, quota.value.unit);
        builder.overdraft = overdraft;
        builder.burst = burst_for(&quota.value, shortest == Some(index));
        add_details(&mut builder, &quota.value, shortest == Some(index));
        let builder = builder.with_blocks_for(rate.value.units);
        match builder.build(rate.value.units) {
            Ok(_) => grants.push(WindowGrant {
                location: rate.location,
                builder,
                units: rate.value.units,
                period: calendar_period(rate.value.period),
            }),
            Err(error) => diagnostics.push(rate_error(quota, rate, &error)),
        }
    }
    Some(QuotaGrant::Windows(grants))
}

fn burst_for(spec: &QuotaSpec, is_shortest: bool) -> Option<Burst> {
    let burst = spec.burst.as_ref().map(|burst| burst.value);
    burst.filter(|_| is_shortest && has_burst(spec))
}

/// Adds how a token bucket refills and what new keys start with. Like the burst, `initial` applies to the shortest period.
fn add_details(builder: &mut QuotaBuilder, spec: &QuotaSpec, is_shortest: bool) {
    let details = &spec.details;
    let remember = details.remember.map(|remember| remember.value);
    let remember = remember.unwrap_or(QuotaDetails::REMEMBER);
    builder.is_stepped = details.is_stepped();
    builder.initial = details
        .initial
        .filter(|_| is_shortest)
        .map(|initial| (initial.value, remember));
}

/// Reports details that the algorithm does not have.
fn check_details(quota: &Located<QuotaSpec>, diagnostics: &mut Vec<Diagnostic>) {
    let spec = &quota.value;
    let details = &spec.details;
    if matches!(spec.amount, Amount::Unlimited) {
        return;
    }
    let mut only_for = |location: Option<SourceLocation>, field: &str, algorithm: Algorithm| {
        if let Some(location) = location.filter(|_| spec.algorithm != algorithm) {
            let name = algorithm.name();
            diagnostics.push(Diagnostic::new(
                location,
                format!("`{field}` is only for {name}"),
                format!("leave `{field}` out, or use `algorithm: {name}`"),
            ));
        }
    };
    let location = details.window.map(|window| window.location);
    only_for(location, "window", Algorithm::FixedWindow);
    let location = details.refill.map(|refill| refill.location);
    only_for(location, "refill", Algorithm::TokenBucket);
    let location = details.initial.map(|initial| initial.location);
    only_for(location, "initial", Algorithm::TokenBucket);
    if let (Some(remember), None) = (details.remember, details.initial) {
        diagnostics.push(Diagnostic::new(
            remember.location,
            "`remember` is only for quotas with `initial`",
            "leave `remember` out, or say with `initial` what new keys start with",
        ));
    }
}

const fn calendar_period(period: Period) -> Option<Period> {
    match period {
        Period::Span(_) => None,
        Period::Month | Period::Year => Some(period),
    }
}

fn compile_concurrency(
    quota: &Located<QuotaSpec>,
    permits: u64,
    lease: Nanos,
    diagnostics: &mut Vec<Diagnostic>,
) -> Option<QuotaGrant> {
    let builder = QuotaBuilder::new(AlgorithmSpec::Concurrency(lease), quota.value.unit);
    match builder.build(permits) {
        Ok(_) => Some(QuotaGrant::Windows(vec![WindowGrant {
            location: quota.location,
            builder,
            units: permits,
            period: None,
        }])),
        Err(error) => {
            diagnostics.push(concurrency_error(quota, lease, &error));
            None
        }
    }
}

fn compile_computed(
    quota: &Located<QuotaSpec>,
    computed: &ComputedRate,
    overdraft: u64,
    diagnostics: &mut Vec<Diagnostic>,
) -> Option<QuotaGrant> {
    let (base, each, most) = (&computed.base, &computed.each, &computed.at_most);
    for other in [each, most] {
        if other.value.period != base.value.period {
            diagnostics.push(Diagnostic::new(
                other.location,
                "a computed rate needs one period",
                "write the same period in all three places, as in `5000/h + 50/h × claim.repos, at most 12500/h`",
            ));
        }
    }
    if most.value.units < base.value.units {
        diagnostics.push(Diagnostic::new(
            most.location,
            format!(
                "`at most` is {}, below the base {}",
                format_number(most.value.units),
                format_number(base.value.units)
            ),
            "write at least the base",
        ));
    }
    let spec = algorithm_spec(quota, base.location, base.value.period, diagnostics)?;
    let mut builder = QuotaBuilder::new(spec, quota.value.unit);
    builder.overdraft = overdraft;
    builder.burst = burst_for(&quota.value, true);
    add_details(&mut builder, &quota.value, true);
    let builder = builder.with_blocks_for(most.value.units);
    for rate in [base, most] {
        if let Err(error) = builder.build(rate.value.units) {
            diagnostics.push(rate_error(quota, rate, &error));
        }
    }
    if let Some(period) = builder.span()
        && builder.spec.algorithm().has_burst()
        && period.as_nanos().saturating_mul(builder.block) / most.value.units.max(1)
            < MIN_EXACT_INTERVAL
        && builder.unit == QuotaUnit::Requests
    {
        diagnostics.push(Diagnostic::new(
            most.location,
            "a computed rate above 1,000,000 per second includes rates that whole nanoseconds cannot express within 0.1 %",
            "lower `at most`, or use `unit: bytes` or `unit: tokens`, which are charged in blocks",
        ));
    }
    Some(QuotaGrant::Computed(ComputedGrant {
        location: quota.location,
        builder,
        base: base.value.units,
        each: each.value.units,
        times: computed.times.clone(),
        at_most: most.value.units,
        period: base.value.period,
    }))
}

/// The algorithm with the period of a rate.
fn algorithm_spec(
    quota: &Located<QuotaSpec>,
    location: SourceLocation,
    period: Period,
    diagnostics: &mut Vec<Diagnostic>,
) -> Option<AlgorithmSpec> {
    let algorithm = quota.value.algorithm;
    if algorithm.is_concurrency() {
        diagnostics.push(Diagnostic::new(
            location,
            "`algorithm: concurrency` has no rate",
            "use `concurrency: 20` instead of `rate`, or another algorithm",
        ));
    }
    algorithm.spec(period, || window(quota, period, diagnostics))
}

/// The window of a period. Weeks, months and years follow the calendar; days too if there is a UTC offset. All other
/// windows begin at multiples of their length since 1970.
fn window(
    quota: &Located<QuotaSpec>,
    period: Period,
    diagnostics: &mut Vec<Diagnostic>,
) -> Option<Window> {
    use tollgate_core::Calendar;
    let minutes = quota.value.utc_offset_minutes;
    let offset = match UtcOffset::from_minutes(minutes) {
        Ok(offset) => offset,
        Err(_beyond_the_earth) => {
            diagnostics.push(Diagnostic::new(
                quota.location,
                format!("`utc_offset` is {minutes} minutes, the maximum is 14 hours"),
                "write an offset from \"-14:00\" to \"+14:00\"",
            ));
            return None;
        }
    };
    let week = Nanos::from_secs(7 * 86_400);
    if let Some(start) = quota.value.details.window
        && start.value == WindowStart::FirstHit
    {
        if let Period::Span(length) = period {
            return Some(Window::FirstHit(length));
        }
        diagnostics.push(Diagnostic::new(
            start.location,
            "`window: first_hit` needs a fixed length, and months and years vary",
            "write the rate per `30d` or `365d`, or leave `window` out",
        ));
        return None;
    }
    Some(match period {
        Period::Month => Window::Calendar(Calendar::Month, offset),
        Period::Span(length) if length == Nanos::DAY && minutes != 0 => {
            Window::Calendar(Calendar::Day, offset)
        }
        // 1970 began on a Thursday, so multiples of seven days do not begin on Mondays.
        Period::Span(length) if length == week => Window::Calendar(Calendar::Week, offset),
        Period::Span(length) => Window::Epoch(length),
        Period::Year => Window::Calendar(Calendar::Year, offset),
    })
}

#[cfg(test)]
mod tests;
