//! The command line options.

use std::path::PathBuf;

/// Which parts to run, how often and how large.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) markdown: bool,
    /// Interleaved repetitions.
    pub(crate) rounds: usize,
    /// Requests in one sequence.
    pub(crate) requests: usize,
    /// Keys of the largest pattern, and of the study of memory.
    pub(crate) most_keys: usize,
    /// Fresh keys that stream in while single decisions are timed.
    pub(crate) fresh: usize,
    /// How often that is repeated.
    pub(crate) streams: usize,
    /// A file that is to have every measurement of decisions.
    pub(crate) measurements: Option<PathBuf>,
    /// The parts to run.
    pub(crate) parts: Vec<Part>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Decisions,
    Limits,
    Engine,
    Resident,
    Latency,
}

pub(crate) const USAGE: &str = "usage: bench memory [--quick] [--markdown] [--measurements FILE] [decisions] [limits] [engine] [resident] [latency]";

const ALL: [(&str, Part); 5] = [
    ("decisions", Part::Decisions),
    ("limits", Part::Limits),
    ("engine", Part::Engine),
    ("resident", Part::Resident),
    ("latency", Part::Latency),
];

impl Options {
    const FULL: Self = Self {
        markdown: false,
        rounds: 7,
        requests: 300_000,
        most_keys: 1_000_000,
        fresh: 10_000_000,
        streams: 1,
        measurements: None,
        parts: Vec::new(),
    };

    /// Reads the words; with no part named, all of them run.
    pub(crate) fn parse(words: &[String]) -> Result<Self, String> {
        let mut options = Self::FULL;
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--quick" => options.shorten(),
                "--markdown" => options.markdown = true,
                "--measurements" => {
                    let path = words.next().ok_or("--measurements needs a file")?;
                    options.measurements = Some(path.into());
                }
                word => match ALL.iter().find(|(name, _)| *name == word) {
                    Some((_, part)) => options.parts.push(*part),
                    None => return Err(format!("`{word}` is unknown\n{USAGE}")),
                },
            }
        }
        if options.parts.is_empty() {
            options.parts = ALL.iter().map(|(_, part)| *part).collect();
        }
        Ok(options)
    }

    /// Shows that everything runs. The numbers mean little.
    fn shorten(&mut self) {
        self.rounds = 3;
        self.requests = 100_000;
        // Every contender is filled with all keys four times.
        self.most_keys = 100_000;
        self.fresh = 300_000;
        self.streams = 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, String> {
        Options::parse(
            &line
                .split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>(),
        )
    }

    #[test]
    fn everything_runs_unless_parts_are_named() {
        assert_eq!(parse("").map(|options| options.parts.len()), Ok(5));
        assert_eq!(
            parse("--quick latency").map(|options| options.parts),
            Ok(vec![Part::Latency])
        );
        assert!(parse("--fast").is_err_and(|error| error.contains("--fast")));
    }
}
