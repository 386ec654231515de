//! The command line options. Must not know: what is measured with them.

use std::path::PathBuf;

/// Which parts, how often, and how far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) markdown: bool,
    /// Repetitions of each point.
    pub(crate) rounds: usize,
    /// Decisions in one lap in memory.
    pub(crate) requests: usize,
    /// Decisions in one lap over Redis, by each of the callers.
    pub(crate) calls: usize,
    /// The most keys in a store. A store that would take more than a quarter of the free memory is left out.
    pub(crate) most_keys: usize,
    /// The most limits in a policy.
    pub(crate) most_limits: usize,
    /// A file that is to have every measurement.
    pub(crate) measurements: Option<PathBuf>,
    pub(crate) parts: Vec<GrowthStudy>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GrowthStudy {
    Keys,
    KeyLength,
    Threads,
    Policy,
    Limits,
    Redis,
}

const USAGE: &str = "usage: bench growth [--quick] [--markdown] [--measurements FILE] \
                     [keys] [key-length] [threads] [policy] [limits] [redis]";

const ALL: [(&str, GrowthStudy); 6] = [
    ("keys", GrowthStudy::Keys),
    ("key-length", GrowthStudy::KeyLength),
    ("threads", GrowthStudy::Threads),
    ("policy", GrowthStudy::Policy),
    ("limits", GrowthStudy::Limits),
    ("redis", GrowthStudy::Redis),
];

impl Options {
    pub(crate) fn parse(words: &[String]) -> Result<Self, String> {
        let mut options = Self {
            markdown: false,
            rounds: 5,
            requests: 300_000,
            calls: 400,
            most_keys: 100_000_000,
            most_limits: 10_000,
            measurements: None,
            parts: Vec::new(),
        };
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
    pub(crate) fn shorten(&mut self) {
        self.rounds = 3;
        self.requests = 50_000;
        self.calls = 50;
        self.most_keys = 1_000_000;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, String> {
        let words: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
        Options::parse(&words)
    }

    #[test]
    fn everything_runs_unless_parts_are_named() {
        assert_eq!(parse("").unwrap().parts.len(), ALL.len());
        assert_eq!(parse("policy").unwrap().parts, [GrowthStudy::Policy]);
        assert!(parse("--quick").unwrap().most_keys < parse("").unwrap().most_keys);
    }

    #[test]
    fn an_unknown_word_is_named() {
        assert!(parse("--fast").is_err_and(|error| error.contains("--fast")));
        assert!(parse("--measurements").is_err());
    }
}
