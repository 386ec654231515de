//! What a refusal of a rate that was held means: another client tested or looked, or the quota was reduced.
//!
//! Must not know: how the search for the former rate works.

use tollgate_core::{Nanos, Timestamp};

use super::{HiddenQuota, Phase, nanos, seconds};
use crate::random::Random;

/// A rate that was held for this long without a refusal is right. So a refusal shows that the quota was reduced.
const CALM: Nanos = Nanos::from_secs(60);
/// Two refusals within so many requests show the same for a rate that was held for less.
const REPEATED_REQUESTS: f64 = 30.0;
/// A refusal within this time of the last one lowers the rate by this factor: clients together have a little too much.
const RECENT: Nanos = Nanos::from_secs(300);
const LOWER: f64 = 0.985;
/// A reduced quota is half of the former one until it is measured. If that is refused as well, the rate falls again.
const HALF: f64 = 0.5;
const FURTHER_CUT: f64 = 0.7;
/// For so many requests after a cut, further refusals are about clients that have not cut their rate yet.
const SETTLE_REQUESTS: f64 = 24.0;
/// The first look after a cut comes within this many seconds: sooner than others, because the cut may be a mistake.
const FIRST_LOOK_SECONDS: [f64; 2] = [3.0, 9.0];
/// A rate that was held for this long is worth looking for when the quota is reduced.
pub(super) const CONFIRMED: Nanos = Nanos::from_secs(30);

impl HiddenQuota {
    /// Records a refusal of a rate that is held, for a client that is not slow. Returns whether it cut the rate.
    pub(super) fn on_held_refusal(
        &mut self,
        sent_at: Timestamp,
        now: Timestamp,
        random: &mut Random,
    ) -> bool {
        let previous = self.held_refusal_at;
        self.held_refusal_at = now;
        let is_settled = now >= self.settled_at && previous >= self.settled_at;
        let is_repeated = is_settled && now.since(previous) < nanos(REPEATED_REQUESTS / self.rate);
        let is_calm = self.reduced.is_none() && now.since(self.held_since) > CALM;
        if is_repeated || is_calm {
            self.assume_reduction(previous, now, random);
            return true;
        }
        if self.reduced.is_some() {
            self.measure_reduced(sent_at);
            self.yield_to_foreign_series(now);
        } else if now.since(previous) < RECENT {
            self.target *= LOWER;
            self.set_rate(self.target);
        }
        false
    }

    /// Whether a refusal of a request that was sent before the last cut is the second of a rate that is held.
    pub(super) fn is_repeated_in_flight(&self) -> bool {
        let is_held = self.phase == Phase::Hold && self.reduced.is_none() && !self.is_slow();
        is_held && self.held_refusal_at == self.cut_at
    }

    /// Halves the rate and looks for the former one. A mistake costs no refusal: the first look finds it again.
    pub(super) fn assume_reduction(
        &mut self,
        previous: Timestamp,
        now: Timestamp,
        random: &mut Random,
    ) {
        if self.reduced.is_some() {
            self.target *= FURTHER_CUT;
        } else {
            if self.confirmed_rate.is_none() || now.since(self.held_since) > CONFIRMED {
                self.confirmed_rate = Some(self.target);
            }
            if now.since(previous) < RECENT {
                self.confirmed_rate = self.confirmed_rate.map(|rate| rate * LOWER);
            }
            self.target *= HALF;
        }
        self.held_since = now;
        self.set_rate(self.target);
        self.settled_at = now.after(nanos(SETTLE_REQUESTS / self.rate));
        self.search_former_rate(now, random);
        if let Some(reduced) = &mut self.reduced
            && reduced.since == now
        {
            reduced.is_suspicion = true;
            let [first, last] = FIRST_LOOK_SECONDS;
            let wait = nanos(first + (last - first) * random.fraction());
            reduced.probe_at = now.after(wait);
        }
    }

    /// A test was refused: the rate before it was right.
    pub(super) fn end_test(&mut self, now: Timestamp) {
        self.confirm_tested_rate();
        self.hold_at(self.target, now);
        // If the quota was reduced meanwhile, the next refusal shows it.
        self.held_refusal_at = now;
        self.settled_at = now;
    }

    /// Each test that fails doubles the time until the next.
    pub(super) fn confirm_tested_rate(&mut self) {
        if !self.is_measured {
            // The test began at a guess and grew slowly: its end is close to the quota.
            self.target = self.target.max(self.rate * super::UNMEASURED_TEST_CUT);
        }
        self.is_measured = true;
        self.confirmed_rate = Some(self.target);
        self.hold = nanos(seconds(self.hold) * 2.0);
    }
}
