//! Divides a quota into shares: one bucket for each, and the common bucket that every admitted request is charged to.
//!
//! A share refills at its part of the rate and holds half of its part of the burst. The common bucket refills at the whole rate. It
//! holds what the shares do not, and owners may overdraw it by what the shares hold. So all of them together never exceed the quota
//! ([ADR 0077](../../../../docs/adr/0077-guarantee-shares-of-a-quota-with-one-bucket-each-and-a-common-bucket-that-owners-may-overdraw.md)). Must not know: who gets
//! which share, how requests are decided.

use tollgate_core::Nanos;
use tollgate_core::limit::Limit;

use super::limit::MeterCollector;
use super::quota::{QuotaGrant, WindowGrant, compile_quota};
use crate::humanize::format_number;
use crate::model::{Burst, Cost, KeyPart, LimitRule, Percent, Shares};
use crate::rules::{AlgorithmSpec, KeySpec, MeterRole, QuotaBuilder};
use crate::source::Diagnostic;

/// A quota that is divided into shares.
#[derive(Clone, Debug)]
pub(crate) struct DividedQuota {
    /// The common bucket.
    pub(crate) common: WindowGrant,
    /// The bucket of each share, in their order.
    pub(crate) shares: Vec<WindowGrant>,
}

/// Divides the quota of a limit into its shares.
///
/// # Errors
/// Why it cannot be divided so.
pub(crate) fn divide_quota(
    limit: &LimitRule,
    shares: &Shares,
) -> Result<DividedQuota, Vec<Diagnostic>> {
    let name = format!("limit `{}`", limit.name.value);
    let grant = compile_quota(&limit.quota, 0)?;
    let Some(divisible) = DivisibleQuota::new(&grant) else {
        return Err(vec![Diagnostic::new(
            shares.by.location,
            format!("{name}: `shares` are parts of one token bucket that refills evenly"),
            "write one rate above zero without `algorithm`, `refill` and `initial`",
        )]);
    };
    let parts: Vec<Percent> = shares.shares.iter().map(|(_, part)| part.value).collect();
    let mut diagnostics = Vec::new();
    for (share, part) in &shares.shares {
        if part.value == Percent::ZERO {
            diagnostics.push(Diagnostic::new(
                part.location,
                format!("{name}: share `{}` guarantees nothing", share.value),
                "give it a part of the quota, or leave it out: a request without a share borrows",
            ));
        }
    }
    let sum: u32 = parts.iter().map(|part| u32::from(part.hundredths())).sum();
    if sum > u32::from(Percent::ALL.hundredths()) {
        let (whole, rest) = (sum / 100, sum % 100);
        diagnostics.push(Diagnostic::new(
            shares.by.location,
            format!("{name}: the shares are {whole}.{rest:02}% of the quota together"),
            "guarantee at most 100%",
        ));
    }
    if !diagnostics.is_empty() {
        return Err(diagnostics);
    }
    let cost = required_cost(&limit.cost);
    let bursts = divisible.bursts(&parts);
    let is_enough = |(shares, common): &(Vec<u64>, u64)| {
        *common >= cost && shares.iter().all(|share| *share >= cost)
    };
    let Some((bursts, common)) = bursts.filter(is_enough) else {
        let for_cost = match cost {
            1 => String::new(),
            _ => format!(" for a request that costs {}", format_number(cost)),
        };
        let location = limit.quota.value.burst.as_ref().map(|burst| burst.location);
        return Err(vec![Diagnostic::new(
            location.unwrap_or(shares.by.location),
            format!(
                "{name}: a burst of {} has no room{for_cost} in every share and beside them",
                format_number(divisible.burst())
            ),
            format!(
                "raise `burst` to at least {}",
                format_number(divisible.least_burst(&parts, cost))
            ),
        )]);
    };
    divisible.build(&name, shares, &bursts, common)
}

impl MeterCollector {
    /// Adds the common bucket and one meter for each share. The variant of a share is one more than its index, as with tiers. All have
    /// the key of the limit, so they are in one cluster slot.
    pub(super) fn add_shares(&mut self, limit: &LimitRule, shares: &Shares, key: &[KeyPart]) {
        let divided = match divide_quota(limit, shares) {
            Ok(divided) => divided,
            Err(diagnostics) => return self.diagnostics.extend(diagnostics),
        };
        let key = KeySpec::new(key.to_vec());
        let common = QuotaGrant::Windows(vec![divided.common]);
        self.add(MeterRole::Main, "", None, &[common], &key);
        for (variant, ((name, _), share)) in shares.shares.iter().zip(divided.shares).enumerate() {
            let mut variants = vec![QuotaGrant::Unlimited; shares.shares.len().saturating_add(1)];
            if let Some(own) = variants.get_mut(variant.saturating_add(1)) {
                *own = QuotaGrant::Windows(vec![share]);
            }
            let suffix = format!("!share/{}", name.value);
            self.add(
                MeterRole::Share,
                &suffix,
                Some(&name.value),
                &variants,
                &key,
            );
        }
    }
}

/// The cost that every share must have room for, as far as the policy tells it.
fn required_cost(cost: &Cost) -> u64 {
    let cost = match cost {
        Cost::Fixed(cost) => *cost,
        Cost::ByValue {
            values, otherwise, ..
        } => {
            let values = values.iter().map(|(_, cost)| *cost);
            values.max().unwrap_or(0).max(*otherwise)
        }
        Cost::Attribute {
            at_least,
            otherwise,
            ..
        } => *at_least.max(otherwise),
        Cost::Response { estimate, .. } | Cost::ResponseBody { estimate, .. } => *estimate,
    };
    cost.max(1)
}

/// A token bucket that can be divided.
#[derive(Clone, Copy, Debug)]
struct DivisibleQuota {
    window: WindowGrant,
    /// The time in which one block is refilled.
    interval: u64,
    /// The burst in blocks.
    blocks: u64,
}

impl DivisibleQuota {
    /// The quota, if it is one plain token bucket that admits something.
    fn new(grant: &QuotaGrant) -> Option<Self> {
        let QuotaGrant::Windows(windows) = grant else {
            return None;
        };
        let [window] = windows.as_slice() else {
            return None;
        };
        let builder = &window.builder;
        let is_plain = matches!(builder.spec, AlgorithmSpec::TokenBucket(_))
            && !builder.is_stepped
            && builder.initial.is_none()
            && window.units > 0;
        let limit: Limit = builder.build(window.units).ok().filter(|_| is_plain)?;
        let bucket = limit.bucket()?;
        Some(Self {
            window: *window,
            interval: bucket.interval().as_nanos(),
            blocks: bucket.limit() / bucket.block(),
        })
    }

    /// The burst of the whole quota, in units.
    const fn burst(&self) -> u64 {
        self.blocks.saturating_mul(self.window.builder.block)
    }

    /// The burst of each share and of the common bucket, in units. `None` if nothing would be left for the latter.
    fn bursts(&self, parts: &[Percent]) -> Option<(Vec<u64>, u64)> {
        let block = self.window.builder.block;
        let (shares, common) = bursts(self.blocks, parts)?;
        let units = |blocks: u64| blocks.saturating_mul(block);
        Some((shares.into_iter().map(units).collect(), units(common)))
    }

    /// The smallest burst in units with which every share and the common bucket admit this cost.
    fn least_burst(&self, parts: &[Percent], cost: u64) -> u64 {
        let block = self.window.builder.block;
        let cost = cost.div_ceil(block).max(1);
        let fits = |blocks: u64| {
            bursts(blocks, parts).is_some_and(|(shares, common)| {
                common >= cost && shares.iter().all(|share| *share >= cost)
            })
        };
        // A share holds at least one block, whatever the burst.
        let for_share = |part: &Percent| match cost {
            1 => 1,
            _ => div_ceil(u128::from(cost) * 2 * WHOLE, part.hundredths().into()),
        };
        let mut blocks = parts.iter().map(for_share).max().unwrap_or(1);
        // The shares hold at most half, and one block each. So this ends after a few steps.
        while !fits(blocks) && blocks < u64::MAX {
            blocks = blocks.saturating_add(1);
        }
        blocks.saturating_mul(block)
    }

    /// Builds every bucket once, so that later builds do not fail.
    fn build(
        &self,
        name: &str,
        shares: &Shares,
        bursts: &[u64],
        common: u64,
    ) -> Result<DividedQuota, Vec<Diagnostic>> {
        let mut diagnostics = Vec::new();
        let mut built = Vec::with_capacity(bursts.len());
        for ((share, part), burst) in shares.shares.iter().zip(bursts) {
            let window = self.share(part.value, *burst);
            if let Err(error) = window.builder.build(window.units) {
                diagnostics.push(Diagnostic::new(
                    part.location,
                    format!("{name}: share `{}`: {error}", share.value),
                    "give it a larger part of the quota",
                ));
            }
            built.push(window);
        }
        let guaranteed = bursts
            .iter()
            .fold(0_u64, |sum, burst| sum.saturating_add(*burst));
        let common = self.common(common, guaranteed);
        if let Err(error) = common.builder.build(common.units) {
            diagnostics.push(Diagnostic::new(
                shares.by.location,
                format!("{name}: the common bucket of the shares: {error}"),
                "lower `burst`",
            ));
        }
        match diagnostics.is_empty() {
            true => Ok(DividedQuota {
                common,
                shares: built,
            }),
            false => Err(diagnostics),
        }
    }

    /// The bucket of a share: its interval is rounded up from the one in force, so that all shares together are never faster than
    /// the quota.
    fn share(&self, part: Percent, burst: u64) -> WindowGrant {
        let interval = div_ceil(u128::from(self.interval) * WHOLE, part.hundredths().into());
        let builder = QuotaBuilder {
            spec: AlgorithmSpec::TokenBucket(Nanos::from_nanos(interval)),
            burst: Some(Burst::Units(burst)),
            overdraft: 0,
            ..self.window.builder
        };
        WindowGrant {
            builder,
            units: builder.block,
            period: None,
            ..self.window
        }
    }

    /// The common bucket: the whole rate, and an overdraft of what the shares hold.
    fn common(&self, burst: u64, overdraft: u64) -> WindowGrant {
        let builder = QuotaBuilder {
            burst: Some(Burst::Units(burst)),
            overdraft,
            ..self.window.builder
        };
        WindowGrant {
            builder,
            ..self.window
        }
    }
}

/// 100 % in hundredths of a percent.
const WHOLE: u128 = 10_000;

/// The burst of each share and of the common bucket, in blocks: half of the share's part, and what is left.
fn bursts(blocks: u64, parts: &[Percent]) -> Option<(Vec<u64>, u64)> {
    let share = |part: &Percent| {
        let half = u128::from(blocks) * u128::from(part.hundredths()) / (2 * WHOLE);
        u64::try_from(half).unwrap_or(u64::MAX).max(1)
    };
    let shares: Vec<u64> = parts.iter().map(share).collect();
    let guaranteed = shares
        .iter()
        .try_fold(0_u64, |sum, share| sum.checked_add(*share))?;
    let common = blocks
        .checked_sub(guaranteed)
        .filter(|common| *common > 0)?;
    Some((shares, common))
}

fn div_ceil(dividend: u128, divisor: u128) -> u64 {
    let quotient = dividend.div_ceil(divisor.max(1));
    u64::try_from(quotient).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::SourceFormat;

    fn limit(text: &str) -> LimitRule {
        let text = format!("limits: [{{ name: a, {text} }}]");
        let policy = crate::load(&text, "p.yaml", SourceFormat::Yaml).unwrap();
        policy.limits.into_iter().next().unwrap()
    }

    fn divisible(text: &str) -> Option<DivisibleQuota> {
        DivisibleQuota::new(&compile_quota(&limit(text).quota, 0).unwrap())
    }

    fn parts(hundredths: &[u16]) -> Vec<Percent> {
        let parts = hundredths.iter();
        parts.map(|part| Percent::from_hundredths(*part)).collect()
    }

    /// Interval and burst of each bucket, the common one last, with its overdraft in intervals.
    fn buckets(text: &str, shares: &[u16]) -> (Vec<(u64, u64)>, u64) {
        let quota = divisible(text).unwrap();
        let shares = parts(shares);
        let (bursts, common) = quota.bursts(&shares).unwrap();
        let overdraft = bursts.iter().sum();
        let share = |(part, burst): (&Percent, u64)| quota.share(*part, burst);
        let divided = DividedQuota {
            shares: shares.iter().zip(bursts).map(share).collect(),
            common: quota.common(common, overdraft),
        };
        let windows = divided.shares.iter().chain([&divided.common]);
        let built: Vec<_> = windows
            .map(|window| window.builder.build(window.units).unwrap())
            .collect();
        let buckets = built.iter().map(|limit| limit.bucket().unwrap());
        let common = built.last().unwrap().bucket().unwrap();
        let debt = common.saturation().as_nanos() - common.refill_time().as_nanos();
        let pairs = buckets.map(|bucket| (bucket.interval().as_nanos(), bucket.limit()));
        (pairs.collect(), debt / common.interval().as_nanos())
    }

    #[test]
    fn shares_hold_half_of_their_part_and_the_common_bucket_holds_what_is_left() {
        let (of_quota, overdraft) = buckets("rate: 100/s", &[5_000, 3_000]);
        let second = 1_000_000_000_u64;
        let expected = [
            (second / 50, 25),
            ((second / 100 * 100).div_ceil(30), 15),
            (second / 100, 60),
        ];
        assert_eq!((of_quota.as_slice(), overdraft), (&expected[..], 40));
        // A share of little holds one unit, and the whole quota may be guaranteed.
        let (of_quota, overdraft) = buckets("rate: 10/s, burst: 5", &[1, 9_999]);
        assert_eq!(of_quota[0], (second / 10 * 10_000, 1));
        assert_eq!((of_quota[1].1, of_quota[2].1, overdraft), (2, 2, 3));
    }

    #[test]
    fn shares_are_never_faster_than_the_quota_in_force() {
        for units in [3, 7, 999, 123_457] {
            let text = format!("rate: {units}/s, burst: 1000");
            let (of_quota, _) = buckets(&text, &[3_333, 3_333, 3_334]);
            let (common, shares) = of_quota.split_last().unwrap();
            // A common multiple is too long, so the rates are compared as fractions of a long time.
            let rate = |interval: u64| (1_u128 << 100) / u128::from(interval);
            let of_shares: u128 = shares.iter().map(|share| rate(share.0)).sum();
            assert!(of_shares <= rate(common.0), "{units}");
        }
    }

    #[test]
    fn blocks_stay_whole() {
        let text = "rate: 10GB/s, unit: bytes, burst: 1GB";
        let divisible = divisible(text).unwrap();
        let block = divisible.window.builder.block;
        assert!(block > 1);
        let (shares, common) = divisible.bursts(&parts(&[3_333])).unwrap();
        assert_eq!((shares[0] % block, common % block), (0, 0));
        assert_eq!(shares[0] + common, 1_000_000_000);
        limit("rate: 10GB/s, unit: bytes, burst: 1GB, shares: { by: claim.team, a: 33.33% }");
    }

    /// The least burst works, and one less does not.
    #[test]
    fn the_least_burst_is_the_least() {
        let divisible = divisible("rate: 10/s").unwrap();
        for shares in [
            &[10_000][..],
            &[5_000, 5_000],
            &[1, 1, 1],
            &[3_000, 100, 6_900],
        ] {
            let parts = parts(shares);
            for cost in [1, 2, 3, 10, 1_000] {
                let fits = |burst: u64| {
                    let burst = bursts(burst, &parts);
                    burst.is_some_and(|(all, common)| {
                        common >= cost && all.iter().all(|share| *share >= cost)
                    })
                };
                let least = divisible.least_burst(&parts, cost);
                assert!(fits(least), "{shares:?} {cost}: {least}");
                assert!(!(1..least).any(fits), "{shares:?} {cost}: {least}");
            }
        }
        let dearest = divisible.least_burst(&parts(&[1]), u64::MAX);
        assert_eq!(dearest, u64::MAX, "and it ends");
    }

    #[test]
    fn only_one_plain_token_bucket_can_be_divided() {
        assert!(divisible("rate: 10/s").is_some());
        for other in [
            "rate: [10/s, 100/h]",
            "rate: 0/s",
            "rate: 10/s, algorithm: fixed_window",
            "rate: 10/s, refill: interval",
            "rate: 10/s, initial: 1",
            "concurrency: 5",
        ] {
            assert!(divisible(other).is_none(), "{other}");
        }
    }
}
