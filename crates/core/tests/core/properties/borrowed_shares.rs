//! Guaranteed shares of one quota whose idle parts are lent: token buckets in two steps, against the quota and the entitlements.
//!
//! A request of a team is charged to the team's share and to the commons if the share has room; the commons may go into debt for it.
//! Otherwise it borrows: only the commons decides. The commons has the rate of the whole quota, and its burst without those of
//! the shares. Precisely: all admissions together fit the quota. A team that has room in its share is admitted whatever others do,
//! so nobody waits longer than one refill interval of its share. While somebody wants more, less than 1 % of the quota is lost.

use proptest::prelude::*;
use tollgate_core::token_bucket::{Tat, TokenBucket};
use tollgate_core::{Nanos, Outcome, Rate, Timestamp};

use super::harness::{CheckResult, assert_caught, assert_holds, ensure};

/// The refill interval of the quota, and the time between two rounds of requests.
const INTERVAL: u64 = 1_000_000;

/// A quota, the shares of some teams in percent, and how many requests each team sends in each round of each phase. The last team
/// has no share.
#[derive(Clone, Debug)]
struct Scenario {
    burst: u64,
    shares: Vec<u64>,
    phases: Vec<(usize, Vec<u8>)>,
}

fn scenarios() -> impl Strategy<Value = Scenario> {
    let shares = prop::collection::vec(1_u64..=50, 1..5);
    let shares = shares.prop_filter("more than the quota", |all| all.iter().sum::<u64>() <= 100);
    let phase = (1_usize..200, prop::collection::vec(0_u8..4, 5));
    let phases = prop::collection::vec(phase, 1..8);
    (10_u64..200, shares, phases).prop_map(|(burst, shares, phases)| Scenario {
        burst,
        shares,
        phases,
    })
}

/// What may be wrong with an implementation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variant {
    Right,
    /// The commons must have room for a request within its share, too.
    CommonsDenyOwners,
    /// Requests within a share are not charged to the commons.
    OwnersAreFree,
    /// The commons keeps the burst of the whole quota.
    WholeBurst,
    /// Shares are never lent.
    NothingIsLent,
}

struct SharedQuota {
    variant: Variant,
    commons: (TokenBucket, Tat),
    shares: Vec<(TokenBucket, Tat)>,
}

fn bucket(interval: u64, burst: u64, overdraft: u64) -> TokenBucket {
    let builder = TokenBucket::builder(Rate::new(1, Nanos::from_nanos(interval)));
    builder.burst(burst).overdraft(overdraft).build().unwrap()
}

/// The bucket of a share: its interval is rounded up from that of the quota, so that all shares together are never faster, and it
/// has half of its part of the burst.
fn share_bucket(burst: u64, percent: u64) -> TokenBucket {
    let interval = (INTERVAL * 100).div_ceil(percent);
    bucket(interval, (burst * percent / 200).max(1), 0)
}

impl SharedQuota {
    fn new(scenario: &Scenario, variant: Variant) -> Self {
        let shares = scenario.shares.iter();
        let shares: Vec<_> = shares
            .map(|percent| (share_bucket(scenario.burst, *percent), 0))
            .collect();
        let guaranteed: u64 = shares.iter().map(|(share, _)| share.limit()).sum();
        let burst = match variant {
            Variant::WholeBurst => scenario.burst,
            _ => scenario.burst - guaranteed,
        };
        Self {
            variant,
            commons: (bucket(INTERVAL, burst, guaranteed), 0),
            shares,
        }
    }

    fn admits(&mut self, team: usize, now: Timestamp) -> bool {
        let (commons, tat) = &mut self.commons;
        let borrowed = commons.decide(*tat, now, 1);
        let Some((share, share_tat)) = self.shares.get_mut(team) else {
            *tat = borrowed.next.unwrap_or(*tat);
            return borrowed.outcome == Outcome::Allow;
        };
        let own = share.decide(*share_tat, now, 1);
        let is_own = own.outcome == Outcome::Allow
            && (self.variant != Variant::CommonsDenyOwners || borrowed.outcome == Outcome::Allow);
        if is_own {
            *share_tat = own.next.unwrap_or(*share_tat);
            if self.variant != Variant::OwnersAreFree {
                *tat = commons.charge_always(*tat, now, 1).next.unwrap_or(*tat);
            }
            return true;
        }
        if self.variant == Variant::NothingIsLent {
            return false;
        }
        *tat = borrowed.next.unwrap_or(*tat);
        borrowed.outcome == Outcome::Allow
    }
}

fn shares_are_guaranteed_and_lent(scenario: &Scenario, variant: Variant) -> CheckResult {
    let mut shared = SharedQuota::new(scenario, variant);
    let quota = bucket(INTERVAL, scenario.burst, 0);
    let mut quota_tat = 0;
    let entitlement = |percent: &u64| (share_bucket(scenario.burst, *percent), 0);
    let mut entitlements: Vec<_> = scenario.shares.iter().map(entitlement).collect();
    let mut now = Timestamp::from_secs(1_000);
    for (rounds, demand) in &scenario.phases {
        let teams = scenario.shares.len() + 1;
        let demand = &demand[..teams];
        let is_saturated = demand.iter().map(|sent| u64::from(*sent)).sum::<u64>() >= 2;
        let mut lost = 0;
        for round in 0..*rounds {
            now = now.after(Nanos::from_nanos(INTERVAL));
            // Time in which the quota was full is lost. Before the first request of a phase nobody wanted it.
            if round > 0 {
                lost += now.as_nanos().saturating_sub(quota_tat).min(INTERVAL);
            }
            for turn in 0..teams {
                let team = (turn + round) % teams;
                for _ in 0..demand[team] {
                    let is_admitted = shared.admits(team, now);
                    if let Some((share, tat)) = entitlements.get_mut(team) {
                        let own = share.decide(*tat, now, 1);
                        *tat = own.next.unwrap_or(*tat);
                        let is_due = own.outcome == Outcome::Allow;
                        ensure!(is_admitted || !is_due, "team {team} waits for others");
                        if let Outcome::Deny { retry_after } = own.outcome {
                            ensure!(retry_after <= share.interval(), "{retry_after:?} to wait");
                        }
                    }
                    if is_admitted {
                        let whole = quota.decide(quota_tat, now, 1);
                        ensure!(whole.outcome == Outcome::Allow, "more than the quota");
                        quota_tat = whole.next.unwrap_or(quota_tat);
                    }
                }
            }
        }
        ensure!(
            !is_saturated || lost * 100 <= *rounds as u64 * INTERVAL,
            "{lost} ns of {rounds} rounds are lost"
        );
    }
    Ok(())
}

#[test]
fn borrowed_shares_are_there_for_their_owner_and_never_exceed_the_quota() {
    assert_holds(&scenarios(), |scenario| {
        shares_are_guaranteed_and_lent(&scenario, Variant::Right)
    });
}

#[test]
fn control_wrong_ways_to_lend_are_caught() {
    for variant in [
        Variant::CommonsDenyOwners,
        Variant::OwnersAreFree,
        Variant::WholeBurst,
        Variant::NothingIsLent,
    ] {
        assert_caught(&scenarios(), |scenario| {
            shares_are_guaranteed_and_lent(&scenario, variant)
        });
    }
}
