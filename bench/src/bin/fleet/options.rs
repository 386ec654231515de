//! The command line options. Must not know: what is measured with them.

/// Which parts, how often, how much, and in which shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) markdown: bool,
    /// Interleaved repetitions.
    pub(crate) rounds: u64,
    /// Calls in one lap that reaches the server.
    pub(crate) calls: u64,
    /// Calls in one lap that does not.
    pub(crate) local: u64,
    /// Keys of the pattern with many.
    pub(crate) keys: u64,
    /// How long the flood lasts.
    pub(crate) seconds: u64,
    pub(crate) parts: Vec<FleetStudy>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FleetStudy {
    Exact,
    Leased,
    Flood,
    Dead,
    Zipf,
}

const USAGE: &str =
    "usage: bench fleet [--quick] [--markdown] [--rounds N] [exact] [leased] [flood] [dead] [zipf]";

const ALL: [(&str, FleetStudy); 5] = [
    ("exact", FleetStudy::Exact),
    ("leased", FleetStudy::Leased),
    ("flood", FleetStudy::Flood),
    ("dead", FleetStudy::Dead),
    ("zipf", FleetStudy::Zipf),
];

impl Options {
    pub(crate) fn parse(words: &[String]) -> Result<Self, String> {
        let mut options = Self {
            markdown: false,
            rounds: 7,
            calls: 40_000,
            local: 400_000,
            keys: 10_000,
            seconds: 5,
            parts: Vec::new(),
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--quick" => options.shorten(),
                "--markdown" => options.markdown = true,
                "--rounds" => {
                    let rounds = words.next().and_then(|word| word.parse().ok());
                    let rounds = rounds.filter(|rounds| (1..=1_000).contains(rounds));
                    options.rounds = rounds.ok_or("--rounds needs a number from 1 to 1000")?;
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

    /// Shows that everything runs. The times mean little; the counts are the same.
    pub(crate) fn shorten(&mut self) {
        self.rounds = 3;
        self.calls = 4_000;
        self.local = 40_000;
        self.keys = 1_000;
        self.seconds = 2;
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
        let some = parse("--rounds 3 dead").unwrap();
        assert_eq!((some.rounds, some.parts), (3, vec![FleetStudy::Dead]));
        let quick = parse("--quick --markdown").unwrap();
        assert!(quick.markdown && quick.calls < parse("").unwrap().calls);
    }

    #[test]
    fn what_is_not_understood_is_named() {
        assert!(parse("--fast").is_err_and(|error| error.contains("--fast")));
        for line in ["--rounds", "--rounds 0", "--rounds many"] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
