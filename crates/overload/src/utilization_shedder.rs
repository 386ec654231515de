//! The worker utilization shedder: sheds classes from the lowest while the process nears saturation.
//!
//! It moves slowly, and between two thresholds it holds, so that it does not flap: Stripe sheds the lowest class over seconds
//! and lets it back over a longer time. The most important class is never shed. Must not know: where the signals come from,
//! clocks.

use tollgate_core::{Nanos, Timestamp};

use crate::priority_class::{MAX_CLASSES, PriorityClass};

/// From this utilization on more is shed.
const SHED_ABOVE: f64 = 0.9;
/// Below this utilization less is shed.
const ADMIT_BELOW: f64 = 0.7;
/// The time in which one class is shed, and in which one class comes back.
const SHED_CLASS_IN: f64 = 5.0;
const ADMIT_CLASS_IN: f64 = 30.0;
/// The longest time that one observation stands for.
const LONGEST_STEP: Nanos = Nanos::SECOND;

/// How busy a process is. Each signal is a part of its saturation: 1 means saturated.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct UtilizationSignals {
    /// Requests in flight against the concurrency limit.
    pub in_flight: f64,
    /// The delay of a queue against the most that is acceptable.
    pub queue_delay: f64,
    /// Processor time against what the machine has.
    pub cpu: f64,
}

impl UtilizationSignals {
    /// The signal that is closest to saturation. A signal that is not a number is ignored.
    #[must_use]
    pub fn utilization(&self) -> f64 {
        self.in_flight.max(self.queue_delay).max(self.cpu).max(0.0)
    }
}

/// Sheds classes from the lowest.
///
/// ```
/// use tollgate_core::Timestamp;
/// use tollgate_overload::{PriorityClass, UtilizationShedder, UtilizationSignals};
///
/// let mut shedder = UtilizationShedder::new(2);
/// let busy = UtilizationSignals { cpu: 0.97, ..Default::default() };
/// for second in 0..10 {
///     shedder.observe(Timestamp::from_secs(second), busy);
/// }
/// let lowest = PriorityClass::new(1).unwrap();
/// assert!(shedder.is_shed(lowest) && !shedder.is_shed(PriorityClass::CRITICAL));
/// ```
#[derive(Debug)]
pub struct UtilizationShedder {
    classes: usize,
    /// How many classes are shed, with the fraction of the next one.
    level: f64,
    utilization: f64,
    observed: Option<Timestamp>,
    /// Of each class, the fraction of a request that is owed to shedding.
    owed: [f64; MAX_CLASSES],
}

impl UtilizationShedder {
    /// A shedder that sheds nothing yet, for so many classes.
    #[must_use]
    pub fn new(classes: usize) -> Self {
        Self {
            classes: classes.min(MAX_CLASSES),
            level: 0.0,
            utilization: 0.0,
            observed: None,
            owed: [0.0; MAX_CLASSES],
        }
    }

    /// Records how busy the process is. To be called several times a second.
    pub fn observe(&mut self, now: Timestamp, signals: UtilizationSignals) {
        self.utilization = signals.utilization();
        let Some(before) = self.observed.replace(now) else {
            return;
        };
        let elapsed = now.since(before).min(LONGEST_STEP);
        #[expect(clippy::cast_precision_loss, reason = "it is at most a second")]
        let elapsed = elapsed.as_nanos() as f64 / 1e9;
        let change = if self.utilization > SHED_ABOVE {
            elapsed / SHED_CLASS_IN
        } else if self.utilization < ADMIT_BELOW {
            -elapsed / ADMIT_CLASS_IN
        } else {
            0.0
        };
        #[expect(clippy::cast_precision_loss, reason = "there are at most 8 classes")]
        let most = self.classes.saturating_sub(1) as f64;
        self.level = (self.level + change).clamp(0.0, most);
    }

    /// Decides whether a request of this class is shed. Over many requests it sheds exactly [`share`](Self::share) of them.
    #[must_use]
    pub fn is_shed(&mut self, class: PriorityClass) -> bool {
        let share = self.share(class);
        let Some(owed) = self.owed.get_mut(class.index()) else {
            return false;
        };
        *owed += share;
        let is_shed = *owed >= 1.0;
        if is_shed {
            *owed -= 1.0;
        }
        is_shed
    }

    /// The share of a class that is shed, from 0 to 1.
    #[must_use]
    pub fn share(&self, class: PriorityClass) -> f64 {
        let from_lowest = self.classes.saturating_sub(1).saturating_sub(class.index());
        #[expect(clippy::cast_precision_loss, reason = "there are at most 8 classes")]
        let from_lowest = from_lowest as f64;
        if class == PriorityClass::CRITICAL {
            return 0.0;
        }
        (self.level - from_lowest).clamp(0.0, 1.0)
    }

    /// How many classes are shed, with the fraction of the next one.
    #[must_use]
    pub const fn level(&self) -> f64 {
        self.level
    }

    /// The utilization that was observed last.
    #[must_use]
    pub const fn utilization(&self) -> f64 {
        self.utilization
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(index: usize) -> PriorityClass {
        PriorityClass::new(index).unwrap()
    }

    fn observe_for(shedder: &mut UtilizationShedder, from: u64, seconds: u64, cpu: f64) -> u64 {
        for tick in 0..seconds * 10 {
            let now = Timestamp::from_nanos(from + tick * 100_000_000);
            let signals = UtilizationSignals {
                cpu,
                ..UtilizationSignals::default()
            };
            shedder.observe(now, signals);
        }
        from + seconds * 1_000_000_000
    }

    #[test]
    fn classes_are_shed_from_the_lowest_and_the_most_important_never() {
        let mut shedder = UtilizationShedder::new(3);
        let now = observe_for(&mut shedder, 0, 4, 0.95);
        assert!(shedder.share(class(2)) > 0.7 && shedder.share(class(2)) < 0.9);
        assert!(shedder.share(class(1)) <= 0.0);
        let now = observe_for(&mut shedder, now, 600, 2.0);
        for (index, share) in [(0, 0.0), (1, 1.0), (2, 1.0)] {
            assert!((shedder.share(class(index)) - share).abs() < 1e-9);
        }
        assert!(now > 0 && (shedder.level() - 2.0).abs() < 1e-9);
    }

    #[test]
    fn between_the_thresholds_it_holds_and_it_admits_more_slowly_than_it_sheds() {
        let mut shedder = UtilizationShedder::new(2);
        let now = observe_for(&mut shedder, 0, 3, 0.95);
        let shed = shedder.level();
        let now = observe_for(&mut shedder, now, 60, 0.8);
        assert!((shedder.level() - shed).abs() < 1e-9, "it holds");
        observe_for(&mut shedder, now, 3, 0.5);
        let back = shed - shedder.level();
        assert!(back > 0.0 && back < shed / 4.0, "{back} of {shed}");
    }

    #[test]
    fn exactly_the_share_is_shed() {
        let mut shedder = UtilizationShedder::new(2);
        observe_for(&mut shedder, 0, 3, 0.95);
        let share = shedder.share(class(1));
        let shed = (0..10_000).filter(|_| shedder.is_shed(class(1))).count();
        assert!((f64::from(u32::try_from(shed).unwrap()) / 10_000.0 - share).abs() < 1e-3);
    }

    #[test]
    fn a_long_silence_a_clock_that_goes_back_and_no_number_change_little() {
        let mut shedder = UtilizationShedder::new(2);
        let busy = UtilizationSignals {
            in_flight: 5.0,
            queue_delay: f64::NAN,
            cpu: f64::NAN,
        };
        assert!((busy.utilization() - 5.0).abs() < 1e-9);
        shedder.observe(Timestamp::from_secs(1), busy);
        shedder.observe(Timestamp::from_secs(1_000_000), busy);
        assert!(shedder.level() <= 0.2 + 1e-9);
        shedder.observe(Timestamp::from_secs(5), busy);
        assert!(shedder.level() <= 0.2 + 1e-9);
    }
}
