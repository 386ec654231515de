//! Writes the series of limits and candidates. Their number is bounded: limits beyond [`MAX_LIMIT_SERIES`] are added up.
//!
//! Must not know: HTTP, how numbers are counted or formatted.

use tollgate_engine::{ComparisonTotals, Generation, LimitTotals};
use tollgate_store::LimitUsage;

use super::exposition::MetricsPage;
use super::families::{self, MetricFamily};
use super::gather::Getter;

/// The first limits of the policy have series of their own. All others are added up under [`OTHER`], so that a policy with
/// thousands of limits does not flood the time series database.
const MAX_LIMIT_SERIES: usize = 500;
/// The label of the limits beyond [`MAX_LIMIT_SERIES`].
const OTHER: &str = "other";

/// Decisions of limits, of rules of Envoy's files and of candidates, by name.
pub(super) fn write_limits(
    page: &mut MetricsPage,
    generation: &Generation,
    of_files: &[(Box<str>, LimitTotals)],
    usage: impl Fn(usize) -> LimitUsage,
) {
    let names = generation.rules().rules().iter().map(|rule| &*rule.name);
    let counted = |index| generation.totals(index).unwrap_or_default();
    let named = names.clone().enumerate();
    let of_policy = named.clone().map(|(index, name)| (name, counted(index)));
    let of_files = of_files.iter().map(|(name, counted)| (&**name, *counted));
    let counted = fold_series(of_policy.chain(of_files), add_totals);
    let mut family = page.family(&families::LIMIT_DECISIONS);
    for (limit, sum) in &counted {
        family
            .add(&[limit, "allowed"], sum.allowed)
            .add(&[limit, "denied"], sum.denied)
            .add(&[limit, "would_deny"], sum.would_deny);
    }
    let single: [(MetricFamily, Getter<LimitTotals>); 5] = [
        (families::LIMIT_NEAR, |sum| sum.near_limit),
        (families::LIMIT_WAITS, |sum| sum.waited),
        (families::LIMIT_STORE_ERRORS, |sum| sum.errors),
        (families::LIMIT_OVERFLOW, |sum| sum.overflow),
        (families::LIMIT_SPILLED_OVER, |sum| sum.spilled_over),
    ];
    for (family, value) in &single {
        let mut family = page.family(family);
        for (limit, sum) in &counted {
            family.add(&[limit], value(sum));
        }
    }
    let used = named.clone().map(|(index, name)| (name, usage(index)));
    let used = fold_series(used, |sum, more| sum.add(&more));
    let single: [(MetricFamily, Getter<LimitUsage>); 2] = [
        (families::LIMIT_EVICTIONS, |usage| usage.evictions),
        (families::LIMIT_CAPACITY_REFUSALS, |usage| {
            usage.overflow_refusals
        }),
    ];
    for (family, value) in &single {
        let mut family = page.family(family);
        for (limit, sum) in &used {
            family.add(&[limit], value(sum));
        }
    }
    let compared =
        named.filter_map(|(index, name)| Some((name, generation.comparison_totals(index)?)));
    let compared = fold_series(compared, add_comparisons);
    let mut family = page.family(&families::CANDIDATE_COMPARED);
    for (limit, sum) in &compared {
        family.add(&[limit], sum.compared);
    }
    let mut family = page.family(&families::CANDIDATE_DIVERGED);
    for (limit, sum) in &compared {
        family
            .add(&[limit, "would_deny"], sum.would_deny)
            .add(&[limit, "would_allow"], sum.would_allow);
    }
    let mut family = page.family(&families::CANDIDATE_UNKNOWN);
    for (limit, sum) in &compared {
        family.add(&[limit], sum.unknown);
    }
}

/// The first values by their names, and the sum of all others under [`OTHER`]. A limit with that name is added to the sum.
fn fold_series<'a, T: Default>(
    all: impl Iterator<Item = (&'a str, T)>,
    add: fn(&mut T, T),
) -> Vec<(&'a str, T)> {
    let mut listed: Vec<(&str, T)> = Vec::new();
    let mut rest = None;
    for (index, (name, value)) in all.enumerate() {
        if index < MAX_LIMIT_SERIES && name != OTHER {
            listed.push((name, value));
        } else {
            add(rest.get_or_insert_default(), value);
        }
    }
    listed.extend(rest.map(|rest| (OTHER, rest)));
    listed
}

fn add_totals(sum: &mut LimitTotals, more: LimitTotals) {
    sum.allowed = sum.allowed.saturating_add(more.allowed);
    sum.denied = sum.denied.saturating_add(more.denied);
    sum.would_deny = sum.would_deny.saturating_add(more.would_deny);
    sum.waited = sum.waited.saturating_add(more.waited);
    sum.near_limit = sum.near_limit.saturating_add(more.near_limit);
    sum.errors = sum.errors.saturating_add(more.errors);
    sum.overflow = sum.overflow.saturating_add(more.overflow);
    sum.spilled_over = sum.spilled_over.saturating_add(more.spilled_over);
}

fn add_comparisons(sum: &mut ComparisonTotals, more: ComparisonTotals) {
    sum.compared = sum.compared.saturating_add(more.compared);
    sum.would_deny = sum.would_deny.saturating_add(more.would_deny);
    sum.would_allow = sum.would_allow.saturating_add(more.would_allow);
    sum.unknown = sum.unknown.saturating_add(more.unknown);
}
