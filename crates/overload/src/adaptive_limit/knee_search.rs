//! Finds the knee: the concurrency from which on more requests in flight only wait for one another.
//!
//! With `n` requests in flight, throughput `X` and latency `R`, Little's law says `n = X·R`. Below the knee `X` grows with `n`
//! and `R` stays; above it `X` stays and `R` grows. Of two measurements with different `n`, the throughput of the higher times
//! the latency of the lower is therefore the knee if it lies between them, the higher `n` if both are below it, and the lower
//! `n` if both are above it. The latencies of two neighbouring phases are compared, never with the least of long ago: so a
//! change of the service time does not move the limit, and a limit that brings no throughput does not grow. `X` is `n/R`,
//! because completions come in bursts and mean latencies do not. Must not know: time, requests.

use super::phase::Measurement;

/// Below this slope of throughput against in-flight requests both measurements are above the knee.
const ABOVE_KNEE: f64 = 0.15;
/// Above this slope both are below it; the second is for steps so wide that the knee may lie anywhere between.
const BELOW_KNEE: f64 = 0.75;
const BELOW_KNEE_WIDE: f64 = 0.5;
/// The slope with which the smoothing begins when the knee was found.
const MIDDLE_SLOPE: f64 = 0.45;
/// A step that changes the limit by this much is wide.
const WIDE: f64 = 0.3;
/// The largest step: it doubles or halves the limit.
const MAX_STEP: f64 = 1.0;
/// The step after the upstream has changed.
const CHANGE_STEP: f64 = 0.25;
/// The distance between the two limits that alternate around the knee, if there is hardly any noise and if there is much.
const AMPLITUDE: (f64, f64) = (0.04, 0.25);
/// The amplitude and the tolerance for changes, in standard errors of a latency.
const AMPLITUDE_NOISE: f64 = 3.0;
const CHANGE_NOISE: f64 = 6.0;
/// The part of the amplitude that lies below the knee. The larger part lies above it, so that little throughput is lost.
const PART_BELOW: f64 = 0.3;
/// The weight of a new estimate of the knee and of a new slope, once the knee was found.
const KNEE_WEIGHT: f64 = 0.5;
const SLOPE_WEIGHT: f64 = 0.3;
const LATENCY_WEIGHT: f64 = 0.2;
/// So many comparisons have to agree, because the first ones may have been taken while a queue grew. The smoothed slope leaves the middle
/// after fewer if all comparisons contradict it.
const SETTLED: u32 = 6;
/// Completions that account for less than this part of the requests in flight say nothing: requests hang or fail.
const LEAST_COMPLETED: f64 = 0.5;
/// The same if requests in flight may exceed the limit. While their number grows, latencies are those of fewer requests.
const LEAST_COMPLETED_OBSERVED: f64 = 0.9;

/// Where the search goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Up,
    Down,
    /// The knee lies between the last two limits.
    Around,
}

/// The search for the knee.
#[derive(Debug)]
pub(super) struct KneeSearch {
    previous: Option<Measurement>,
    direction: Direction,
    /// Whether a comparison said so, and not the start of a search.
    is_direction_measured: bool,
    step: f64,
    change_step: f64,
    knee: f64,
    /// The latest mean latency that was measured at the knee or below, in seconds.
    latency_below_knee: f64,
    /// The slope, smoothed while the knee stays between the last two limits.
    slope: f64,
    /// Consecutive comparisons that had the knee between them.
    settled: u32,
    /// All comparisons that had it between them or changed the direction.
    turns: u32,
}

impl KneeSearch {
    pub(super) const fn new() -> Self {
        Self {
            previous: None,
            direction: Direction::Up,
            is_direction_measured: false,
            step: MAX_STEP,
            change_step: CHANGE_STEP,
            knee: 0.0,
            latency_below_knee: f64::INFINITY,
            slope: MIDDLE_SLOPE,
            settled: 0,
            turns: 0,
        }
    }

    /// Whether the last comparisons agree about the knee.
    pub(super) const fn is_settled(&self) -> bool {
        self.settled >= SETTLED
    }

    /// Whether the knee was found. Before, the limit is only the next one to try.
    pub(super) const fn is_knee_found(&self) -> bool {
        self.turns >= SETTLED
    }

    /// Observes traffic that stays far below the limit. Its latency is most likely the latency without a queue.
    ///
    /// Until the knee was found, the first phase that uses the limit is compared with this measurement, because nothing better
    /// is known.
    pub(super) const fn observe_below_limit(&mut self, now: Measurement) {
        self.latency_below_knee = now.latency;
        if !self.is_knee_found() {
            self.previous = Some(now);
        }
    }

    /// The limit of the next phase. `None` if the measurement says nothing.
    ///
    /// The measurement before may be long ago, because only phases that used the limit are compared. If the upstream changed
    /// since, the two contradict each other, and the search starts again with fewer requests.
    pub(super) fn next_limit(&mut self, now: Measurement) -> Option<f64> {
        let least_completed = if now.exceeds_limit {
            LEAST_COMPLETED_OBSERVED
        } else {
            LEAST_COMPLETED
        };
        if now.throughput * now.latency < least_completed * now.in_flight {
            return None;
        }
        let Some(before) = self.previous.replace(now) else {
            return Some(now.in_flight * (1.0 + self.step));
        };
        let (low, high) = if now.in_flight >= before.in_flight {
            (before, now)
        } else {
            (now, before)
        };
        let width = (high.in_flight / low.in_flight).ln();
        if width < AMPLITUDE.0 / 4.0 {
            // Too close to compare: the step rounded to nothing, or traffic does not follow the limit. Then traffic that stays
            // is no reason to raise the limit to it.
            if now.exceeds_limit {
                return None;
            }
            return Some(self.around(&now, amplitude(&now).max(2.0 / now.in_flight)));
        }
        let estimate = high.in_flight / high.latency * low.latency;
        let below = (low.in_flight / estimate).ln();
        let above = (estimate / high.in_flight).ln();
        let noise = low.noise.max(high.noise);
        if below.max(above) > (CHANGE_NOISE * noise).max(2.0 * AMPLITUDE.0) {
            if !now.exceeds_limit {
                return Some(self.start_again(&now));
            }
            // Nobody follows a lower limit. Much more traffic with less throughput is above the knee; all else says nothing.
            if above > below || width < WIDE {
                return None;
            }
        }
        let slope = (estimate / low.in_flight).ln() / width;
        let was = self.direction;
        let was_around = was == Direction::Around;
        self.turn(slope, width, amplitude(&now));
        self.count_settled(was, !now.exceeds_limit);
        self.latency_below_knee = match self.direction {
            Direction::Down => self.latency_below_knee.min(low.latency),
            Direction::Around if was_around => {
                let part = LATENCY_WEIGHT * low.latency;
                (1.0 - LATENCY_WEIGHT) * self.latency_below_knee + part
            }
            Direction::Up | Direction::Around => low.latency,
        };
        Some(match self.direction {
            Direction::Up => high.in_flight * (1.0 + self.step),
            Direction::Down => self.below(low.in_flight, &high, amplitude(&now)),
            Direction::Around => {
                let estimate = estimate.clamp(low.in_flight, high.in_flight);
                self.knee = match was_around {
                    true => self.knee.powf(1.0 - KNEE_WEIGHT) * estimate.powf(KNEE_WEIGHT),
                    false => estimate,
                };
                self.around(&now, amplitude(&now))
            }
        })
    }

    /// A limit below `low`, while both measurements are above the knee.
    ///
    /// Throughput does not grow there. So throughput times the latency below the knee is the knee. That latency may be out of
    /// date, so it only chooses which limit is measured next.
    fn below(&mut self, low: f64, high: &Measurement, amplitude: f64) -> f64 {
        let knee = high.in_flight / high.latency * self.latency_below_knee;
        if self.is_knee_found() || knee >= low / (1.0 + amplitude) {
            return low / (1.0 + self.step);
        }
        self.step = amplitude;
        (knee * (1.0 - PART_BELOW * amplitude)).max(low / (1.0 + MAX_STEP))
    }

    /// Chooses the direction by the slope of throughput between two measurements that are `width` apart.
    fn turn(&mut self, slope: f64, width: f64, amplitude: f64) {
        let was = self.direction;
        // One noisy measurement must not end a stable state.
        let slope = match was {
            Direction::Around => {
                (1.0 - SLOPE_WEIGHT) * self.slope + SLOPE_WEIGHT * slope.clamp(-1.0, 2.0)
            }
            Direction::Up | Direction::Down => slope,
        };
        let below_knee = if width > WIDE {
            BELOW_KNEE_WIDE
        } else {
            BELOW_KNEE
        };
        self.direction = if slope < ABOVE_KNEE {
            Direction::Down
        } else if slope > below_knee {
            Direction::Up
        } else {
            Direction::Around
        };
        let is_reversed = was != Direction::Around && self.direction != was;
        if is_reversed && self.is_direction_measured {
            // The two comparisons share a limit. The knee is at or below it by one of them, and at or above it by the other.
            self.direction = Direction::Around;
        }
        self.is_direction_measured = true;
        self.step = if was == self.direction {
            (2.0 * self.step).min(MAX_STEP)
        } else {
            amplitude
        };
        match self.direction {
            Direction::Up => self.change_step = (self.change_step / 2.0).max(amplitude),
            Direction::Down => self.change_step = CHANGE_STEP,
            Direction::Around if was == Direction::Around => self.slope = slope,
            Direction::Around => self.slope = MIDDLE_SLOPE,
        }
    }

    /// Traffic that does not follow the limit will not try another one: then one comparison has to do.
    fn count_settled(&mut self, was: Direction, is_followed: bool) {
        let is_around = self.direction == Direction::Around;
        if is_around || self.direction != was {
            self.turns = self.turns.saturating_add(1);
        }
        self.settled = if is_around {
            self.settled.saturating_add(1)
        } else {
            0
        };
        if !is_followed && self.direction != Direction::Up {
            (self.settled, self.turns) = (SETTLED, SETTLED.max(self.turns));
        }
    }

    /// Throughput or latency changed by more than the limit explains: measure anew, and first with fewer requests.
    fn start_again(&mut self, now: &Measurement) -> f64 {
        self.direction = Direction::Down;
        self.is_direction_measured = false;
        self.settled = 0;
        self.step = self.change_step;
        now.in_flight / (1.0 + self.step)
    }

    /// The limit on the other side of the knee.
    fn around(&self, now: &Measurement, amplitude: f64) -> f64 {
        let knee = if self.direction == Direction::Around {
            self.knee
        } else {
            now.in_flight
        };
        if now.in_flight > knee {
            knee * (1.0 - PART_BELOW * amplitude)
        } else {
            knee * (1.0 + (1.0 - PART_BELOW) * amplitude)
        }
    }
}

/// How far the two limits around the knee are apart: more if the latency is noisy.
fn amplitude(measured: &Measurement) -> f64 {
    (AMPLITUDE_NOISE * measured.noise).clamp(AMPLITUDE.0, AMPLITUDE.1)
}
