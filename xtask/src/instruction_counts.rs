//! The instruction counts kept in the repository: their file, and how new ones compare.
//!
//! Knows numbers and names, not how they were measured.

use std::collections::BTreeMap;
use std::fmt;
use std::process::Command;

use crate::process;

/// By how much a count may differ before somebody has to look, in percent, up or down.
const TOLERANCE: f64 = 5.0;

const HEADER: &str = "# Instructions per decision, counted by callgrind. Written by `cargo xtask bench instructions --save`.\n";

/// The compiler and machine that counts belong to. Others generate other instructions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Toolchain {
    rustc: String,
    target: String,
}

/// A set of counts.
pub(crate) struct SavedCounts {
    pub(crate) toolchain: Toolchain,
    counts: BTreeMap<String, f64>,
}

/// Old and new side by side.
pub(crate) struct Comparison {
    pub(crate) rows: Vec<Vec<String>>,
    /// One sentence for each case that needs somebody to look.
    pub(crate) complaints: Vec<String>,
}

impl Toolchain {
    /// What `rustc` says of itself.
    pub(crate) fn running() -> Result<Self, String> {
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let (text, _) = process::capture(Command::new(rustc).arg("-vV"))?;
        Self::parse(&text)
            .ok_or_else(|| format!("rustc -vV said neither release nor host:\n{text}"))
    }

    fn parse(text: &str) -> Option<Self> {
        let field = |name: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix(name))
                .map(str::to_owned)
        };
        Some(Self {
            rustc: field("release: ")?,
            target: field("host: ")?,
        })
    }
}

impl fmt::Display for Toolchain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rustc {} for {}", self.rustc, self.target)
    }
}

impl SavedCounts {
    pub(crate) fn empty(toolchain: Toolchain) -> Self {
        Self {
            toolchain,
            counts: BTreeMap::new(),
        }
    }

    pub(crate) fn insert(&mut self, case: &str, count: f64) {
        self.counts.insert(case.to_owned(), count);
    }

    /// Reads what [`Display`](fmt::Display) wrote.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let toolchain =
            Toolchain::parse(text).ok_or("bench/instructions.txt names no release or no host")?;
        let mut kept = Self::empty(toolchain);
        let cases = text.lines().filter(|line| {
            !(line.is_empty()
                || line.starts_with(['#'])
                || line.starts_with("release: ")
                || line.starts_with("host: "))
        });
        for line in cases {
            let (case, count) = line
                .split_once(' ')
                .ok_or_else(|| format!("bench/instructions.txt: `{line}` is no case and count"))?;
            let count: f64 = count
                .trim()
                .parse()
                .map_err(|error| format!("bench/instructions.txt: `{line}`: {error}"))?;
            if !(count.is_finite() && count > 0.0) {
                return Err(format!(
                    "bench/instructions.txt: `{line}`: a count is above zero"
                ));
            }
            kept.insert(case, count);
        }
        Ok(kept)
    }

    /// These counts beside `old` ones.
    pub(crate) fn compare(&self, old: &Self) -> Comparison {
        let words = ["case", "instructions", "kept", "difference"];
        let mut rows = vec![words.map(str::to_owned).to_vec()];
        let mut complaints = Vec::new();
        for (case, count) in &self.counts {
            let (kept, difference) = match old.counts.get(case) {
                None => {
                    complaints.push(format!("{case}: nothing is kept for it yet"));
                    ("-".to_owned(), "new".to_owned())
                }
                Some(kept) => {
                    let percent = (count - kept) / kept * 100.0;
                    if percent.abs() > TOLERANCE {
                        complaints.push(format!(
                            "{case}: {count:.2} instructions, {percent:+.1} % from the kept {kept:.2}"
                        ));
                    }
                    (format!("{kept:.2}"), format!("{percent:+.1} %"))
                }
            };
            rows.push(vec![case.clone(), format!("{count:.2}"), kept, difference]);
        }
        for case in old
            .counts
            .keys()
            .filter(|case| !self.counts.contains_key(*case))
        {
            complaints.push(format!("{case}: kept, but there is no such case any more"));
        }
        Comparison { rows, complaints }
    }
}

impl fmt::Display for SavedCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HEADER)?;
        writeln!(
            f,
            "release: {}\nhost: {}",
            self.toolchain.rustc, self.toolchain.target
        )?;
        self.counts
            .iter()
            .try_for_each(|(case, count)| writeln!(f, "{case} {count:.2}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(cases: &[(&str, f64)]) -> SavedCounts {
        let toolchain = Toolchain {
            rustc: "1.2.3".to_owned(),
            target: "abacus".to_owned(),
        };
        let mut kept = SavedCounts::empty(toolchain);
        for (case, count) in cases {
            kept.insert(case, *count);
        }
        kept
    }

    #[test]
    fn what_is_written_is_read_again() {
        let kept = counts(&[("allow", 23.0), ("deny", 21.5)]);
        let read = SavedCounts::parse(&kept.to_string()).unwrap();
        assert_eq!(read.toolchain, kept.toolchain);
        assert_eq!(read.counts, kept.counts);
    }

    #[test]
    fn five_percent_passes_and_more_is_caught_in_both_directions() {
        let old = counts(&[("allow", 100.0)]);
        let complaints = |count| counts(&[("allow", count)]).compare(&old).complaints.len();
        assert_eq!([complaints(105.0), complaints(95.0)], [0, 0]);
        assert_eq!([complaints(105.1), complaints(94.9)], [1, 1]);
    }

    #[test]
    fn cases_that_came_or_went_are_caught() {
        let (some, none) = (counts(&[("allow", 100.0)]), counts(&[]));
        assert_eq!(some.compare(&none).complaints.len(), 1);
        assert_eq!(none.compare(&some).complaints.len(), 1);
    }

    /// What is wrong with the cost of a denied request on the gateway. Its count is stated, it is less than that of a forwarded
    /// request, and it does not grow with the number of keys that are denied.
    fn complaints_about_denials(kept: &SavedCounts) -> Vec<&'static str> {
        const MOST: f64 = 30_000.0;
        let count = |case: &str| kept.counts.get(case).copied().unwrap_or(f64::NAN);
        let (one_key, forwarded) = (count("gateway/rejected"), count("gateway/proxied"));
        let many_keys = count("gateway/rejected_10k_keys");
        [
            (one_key <= MOST, "a denial costs more than stated"),
            (
                one_key <= 0.7 * forwarded,
                "a denial costs as much as an admission",
            ),
            (
                many_keys <= 1.05 * one_key,
                "denials cost more with more keys",
            ),
        ]
        .into_iter()
        .filter_map(|(is_fine, complaint)| (!is_fine).then_some(complaint))
        .collect()
    }

    /// `bench instructions --check` holds the kept counts to what is measured.
    #[test]
    fn s_38_a_denial_costs_a_stated_number_of_instructions_however_many_keys_are_denied() {
        let kept = include_str!("../../bench/instructions.txt");
        let kept = SavedCounts::parse(kept).unwrap();
        assert_eq!(complaints_about_denials(&kept), Vec::<&str>::new());
    }

    /// Negative control.
    #[test]
    fn control_denials_that_cost_too_much_are_found() {
        let denials = |one_key, many_keys, forwarded| {
            complaints_about_denials(&counts(&[
                ("gateway/rejected", one_key),
                ("gateway/rejected_10k_keys", many_keys),
                ("gateway/proxied", forwarded),
            ]))
            .len()
        };
        assert_eq!(denials(30_000.0, 31_000.0, 50_000.0), 0);
        assert_eq!(denials(30_001.0, 30_001.0, 50_000.0), 1);
        assert_eq!(denials(20_000.0, 21_001.0, 50_000.0), 1);
        assert_eq!(denials(20_000.0, 20_000.0, 28_000.0), 1);
        assert_eq!(complaints_about_denials(&counts(&[])).len(), 3);
    }

    #[test]
    fn a_damaged_file_is_an_error() {
        let head = "release: 1\nhost: h\n";
        assert!(SavedCounts::parse(head).is_ok());
        for bad in [
            "release: 1\n",
            "release: 1\nhost: h\nallow",
            "release: 1\nhost: h\nallow x",
            "release: 1\nhost: h\nallow NaN",
        ] {
            assert!(SavedCounts::parse(bad).is_err(), "{bad}");
        }
    }
}
