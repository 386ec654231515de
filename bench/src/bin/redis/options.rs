//! The command line options.
//!
//! Must not know: what is measured with it.

/// How often, how much, and in which shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) markdown: bool,
    /// Interleaved repetitions.
    pub(crate) rounds: u64,
    /// Calls in one lap.
    pub(crate) calls: u64,
    /// Keys of the pattern with many.
    pub(crate) keys: u64,
    /// Keys whose memory is counted.
    pub(crate) stored: u64,
}

const USAGE: &str = "usage: bench redis [--quick] [--markdown]";

impl Options {
    pub(crate) fn parse(words: &[String]) -> Result<Self, String> {
        let mut options = Self {
            markdown: false,
            rounds: 9,
            calls: 40_000,
            keys: 20_000,
            stored: 50_000,
        };
        for word in words {
            match word.as_str() {
                "--quick" => options.shorten(),
                "--markdown" => options.markdown = true,
                word => return Err(format!("`{word}` is unknown\n{USAGE}")),
            }
        }
        Ok(options)
    }

    /// Shows that everything runs. The times mean little; the bytes are the same.
    fn shorten(&mut self) {
        self.rounds = 3;
        self.calls = 4_000;
        self.keys = 2_000;
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
    fn a_full_run_repeats_at_least_seven_times_and_a_quick_one_is_shorter() {
        let full = parse("--markdown").unwrap();
        assert!(full.markdown && full.rounds >= 7 && full.stored >= 20_000);
        let quick = parse("--quick").unwrap();
        assert!(!quick.markdown && quick.rounds < full.rounds && quick.calls < full.calls);
        assert!(parse("--fast").is_err_and(|error| error.contains("--fast")));
    }
}
