//! What came of all runs, as a table: of each scenario the worst of every number.
//!
//! Must not know: how scenarios are run.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

/// One run of one scenario.
pub(super) struct Ran {
    pub(super) name: String,
    pub(super) seed: u64,
    pub(super) is_ok: bool,
    /// The lines that it told.
    pub(super) told: String,
    /// What it printed, which matters if it failed.
    pub(super) said: String,
}

/// All runs so far.
pub(super) struct Report {
    seed: u64,
    tests: BTreeMap<String, Runs>,
    scenarios: BTreeMap<String, Worst>,
    failed: Vec<Ran>,
}

#[derive(Default)]
struct Runs {
    all: u64,
    failed: u64,
}

/// The worst numbers that a scenario told.
#[derive(Default)]
struct Worst {
    runs: u64,
    /// Admitted and the bound, of the run that came nearest.
    admitted: Option<(u64, u64)>,
    lost: Option<u64>,
    slowest: Option<f64>,
    recovered: Option<f64>,
}

impl Report {
    pub(super) const fn new(seed: u64) -> Self {
        Self {
            seed,
            tests: BTreeMap::new(),
            scenarios: BTreeMap::new(),
            failed: Vec::new(),
        }
    }

    /// Whether a scenario was run at all.
    pub(super) fn has(&self, name: &str) -> bool {
        self.tests.contains_key(name)
    }

    pub(super) const fn failures(&self) -> usize {
        self.failed.len()
    }

    pub(super) fn add(&mut self, ran: Ran) {
        let runs = self.tests.entry(ran.name.clone()).or_default();
        runs.all += 1;
        runs.failed += u64::from(!ran.is_ok);
        for line in ran.told.lines() {
            let name = line.split('\t').next().unwrap_or_default();
            let worst = self.scenarios.entry(name.to_owned()).or_default();
            worst.add(line);
        }
        if !ran.is_ok {
            self.failed.push(ran);
        }
    }

    pub(super) fn markdown(&self, took: Duration) -> String {
        let runs: u64 = self.tests.values().map(|runs| runs.all).sum();
        let mut text = format!(
            "{runs} runs of {} tests in {} min, seed {}; {} failed.\n\n\
             | scenario | runs | admitted against bound | decisions lost | slowest decision | time to recover |\n\
             |---|---|---|---|---|---|\n",
            self.tests.len(),
            took.as_secs().div_ceil(60),
            self.seed,
            self.failures(),
        );
        for (name, worst) in &self.scenarios {
            text.push_str(&worst.row(name));
        }
        text.push_str("\n| test | runs | failed |\n|---|---|---|\n");
        for (name, runs) in &self.tests {
            let number = number(name).unwrap_or_default();
            let words = name.rsplit("::").next().unwrap_or(name);
            let words = words.get(5..).unwrap_or(words).replace('_', " ");
            // Writing to a string cannot fail.
            let _written = writeln!(
                text,
                "| {number} {words} | {} | {} |",
                runs.all, runs.failed
            );
        }
        for ran in &self.failed {
            let _written = write!(
                text,
                "\n### {} failed with seed {}\n\n```\n{}\n```\n",
                ran.name,
                ran.seed,
                ran.said.trim()
            );
        }
        text
    }
}

impl Worst {
    /// Takes a line of `testkit/src/chaos.rs` in.
    fn add(&mut self, line: &str) {
        self.runs += 1;
        let mut fields = line.split('\t').skip(1);
        let mut next = || fields.next().unwrap_or_default();
        if let Some((admitted, bound)) = next().split_once(" of ")
            && let (Ok(admitted), Ok(bound)) = (admitted.parse::<u64>(), bound.parse::<u64>())
        {
            let is_nearer = |(known, of): (u64, u64)| {
                u128::from(admitted) * u128::from(of) > u128::from(known) * u128::from(bound)
            };
            if self.admitted.is_none_or(is_nearer) {
                self.admitted = Some((admitted, bound));
            }
        }
        self.lost = self.lost.max(next().parse().ok());
        let millis = |field: &str| field.strip_suffix(" ms")?.parse::<f64>().ok();
        let worse = |known: Option<f64>, new: Option<f64>| match (known, new) {
            (Some(known), Some(new)) => Some(known.max(new)),
            (known, new) => known.or(new),
        };
        self.slowest = worse(self.slowest, millis(next()));
        self.recovered = worse(self.recovered, millis(next()));
    }

    fn row(&self, name: &str) -> String {
        let or_nothing = |told: Option<String>| told.unwrap_or_else(|| "–".to_owned());
        let millis = |time: Option<f64>| or_nothing(time.map(|time| format!("{time:.1} ms")));
        format!(
            "| {name} | {} | {} | {} | {} | {} |\n",
            self.runs,
            or_nothing(
                self.admitted
                    .map(|(admitted, bound)| format!("{admitted} of {bound}"))
            ),
            or_nothing(self.lost.map(|lost| lost.to_string())),
            millis(self.slowest),
            millis(self.recovered),
        )
    }
}

/// The number of a scenario, from the name of its test: `S-08` of `faults::s_08_a_lost_reply`.
pub(super) fn number(name: &str) -> Option<String> {
    let last = name.rsplit("::").next()?;
    let (digits, _) = last.strip_prefix("s_")?.split_once('_')?;
    let is_number = digits.len() == 2 && digits.bytes().all(|digit| digit.is_ascii_digit());
    is_number.then(|| format!("S-{digits}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(is_ok: bool, told: &str) -> Ran {
        Ran {
            name: "a::s_08_a_lost_reply".to_owned(),
            seed: 5,
            is_ok,
            told: told.to_owned(),
            said: "it broke".to_owned(),
        }
    }

    #[test]
    fn the_worst_of_every_number_is_kept() {
        let mut report = Report::new(9);
        report.add(ran(true, "S-08 lost\t9 of 10\t3\t1.5 ms\t\n"));
        report.add(ran(true, "S-08 lost\t90 of 110\t1\t20.0 ms\t4.0 ms\n"));
        report.add(ran(true, ""));
        let text = report.markdown(Duration::from_secs(61));
        assert!(
            text.contains("| S-08 lost | 2 | 9 of 10 | 3 | 20.0 ms | 4.0 ms |"),
            "{text}"
        );
        assert!(text.contains("| S-08 a lost reply | 3 | 0 |"), "{text}");
        assert!(text.starts_with("3 runs of 1 tests in 2 min, seed 9; 0 failed."));
        assert!(report.has("a::s_08_a_lost_reply") && !report.has("s_08"));
    }

    #[test]
    fn a_failure_is_told_with_its_seed_and_what_it_said() {
        let mut report = Report::new(9);
        report.add(ran(false, ""));
        let text = report.markdown(Duration::ZERO);
        assert!(text.contains("failed with seed 5") && text.contains("it broke"));
        assert_eq!(report.failures(), 1);
    }
}
