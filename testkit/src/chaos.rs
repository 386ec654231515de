//! What a scenario tells those who run many: which seed it had, and one line of what came of it.
//!
//! `cargo xtask chaos` sets both by environment variables; a test that is run by itself has its own seed and tells nobody.
//! Must not know: what a scenario does.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::time::Duration;

use crate::history::{AvailabilityBounds, WorstWindow};

/// The variable that holds the seed, and the one that names the file for lines.
const SEED: &str = "TOLLGATE_CHAOS_SEED";
const REPORT: &str = "TOLLGATE_CHAOS_REPORT";

/// The seed to run with: what the environment says, else the scenario's own. It is printed, so that a failure can be
/// repeated.
#[must_use]
pub fn seed(own: u64) -> u64 {
    let seed = std::env::var(SEED)
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(own);
    println!("{SEED}={seed}");
    seed
}

/// What came of a scenario. What does not apply stays empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScenarioOutcome {
    /// Its number and a word or two: `S-08 a lost reply`.
    pub scenario: &'static str,
    /// Units admitted on the key that came nearest to its bound, and that bound.
    pub admitted: Option<(u64, u64)>,
    /// Decisions that nobody made: neither the store nor the local tier.
    pub lost: Option<u64>,
    /// The slowest decision.
    pub slowest: Option<Duration>,
    /// From the end of the fault until the store decided everything again.
    pub recovered: Option<Duration>,
}

impl ScenarioOutcome {
    /// Of a scenario of this name.
    #[must_use]
    pub fn of(scenario: &'static str) -> Self {
        Self {
            scenario,
            ..Self::default()
        }
    }

    /// With the worst window.
    #[must_use]
    pub const fn worst(mut self, worst: &WorstWindow) -> Self {
        self.admitted = Some((worst.admitted, worst.allowed));
        self
    }

    /// With how fast answers were.
    #[must_use]
    pub const fn speed(mut self, speed: AvailabilityBounds) -> Self {
        self.slowest = Some(speed.slowest);
        self
    }

    /// With decisions that nobody made.
    #[must_use]
    pub const fn lost(mut self, lost: u64) -> Self {
        self.lost = Some(lost);
        self
    }

    /// With how long it took to recover.
    #[must_use]
    pub const fn recovered(mut self, took: Duration) -> Self {
        self.recovered = Some(took);
        self
    }

    /// Writes the outcome to the report of `cargo xtask chaos`, if it runs the scenario.
    pub fn tell(&self) {
        let Some(path) = std::env::var_os(REPORT) else {
            return;
        };
        let file = OpenOptions::new().create(true).append(true).open(&path);
        let told = file.and_then(|mut file| file.write_all(self.line().as_bytes()));
        if let Err(error) = told {
            eprintln!("{}: {error}", path.display());
        }
    }

    /// Fields between tabs; empty where nothing applies.
    fn line(&self) -> String {
        let admitted = self
            .admitted
            .map(|(admitted, bound)| format!("{admitted} of {bound}"));
        let lost = self.lost.map(|lost| lost.to_string());
        let millis = |time: Option<Duration>| {
            time.map(|time| format!("{:.1} ms", time.as_secs_f64() * 1_000.0))
        };
        let fields = [
            Some(self.scenario.to_owned()),
            admitted,
            lost,
            millis(self.slowest),
            millis(self.recovered),
        ];
        fields.map(Option::unwrap_or_default).join("\t") + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_five_fields_and_those_that_do_not_apply_are_empty() {
        let all = ScenarioOutcome {
            scenario: "S-00 an example",
            admitted: Some((9, 10)),
            lost: Some(0),
            slowest: Some(Duration::from_micros(1_250)),
            recovered: Some(Duration::from_millis(80)),
        };
        let line = "S-00 an example\t9 of 10\t0\t1.2 ms\t80.0 ms\n";
        assert_eq!(all.line(), line);
        assert_eq!(ScenarioOutcome::of("S-00").line(), "S-00\t\t\t\t\n");
    }

    #[test]
    fn without_the_variable_a_scenario_has_its_own_seed() {
        if std::env::var_os(SEED).is_none() {
            assert_eq!(seed(7), 7);
        }
    }
}
