//! The command line of the study.
//!
//! Must not know: what the options do.

use std::path::PathBuf;

pub(crate) const USAGE: &str = "\
usage: accuracy [options]
  --requests N   synthetic requests in the main table (100000000)
  --sources N    sources that send them (270000)
  --seed S       another seed gives other traffic (1)
  --threads N    how many threads share the sources (2); changes no number
  --log FILE     the access log to replay, in Apache's combined format (../shared/data/web-access.log)
  --no-log       replay no access log
  --help         print this
  --markdown     print the tables for docs/accuracy.md
  --smoke        a million synthetic requests and the hand-made patterns, no log; fails if its bounds are broken";

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) requests: u64,
    pub(crate) sources: u64,
    pub(crate) seed: u64,
    pub(crate) threads: usize,
    pub(crate) log: Option<PathBuf>,
    pub(crate) markdown: bool,
    pub(crate) smoke: bool,
}

impl Default for Options {
    fn default() -> Self {
        // Beside the repository, wherever the command is started from.
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
        Self {
            requests: 100_000_000,
            sources: 270_000,
            seed: 1,
            threads: 2,
            log: Some(PathBuf::from(root).join("../shared/data/web-access.log")),
            markdown: false,
            smoke: false,
        }
    }
}

impl Options {
    pub(crate) fn parse(args: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self::default();
        let mut sized = (None, None);
        let mut args = args;
        while let Some(arg) = args.next() {
            let mut value = || {
                let value = args.next();
                value.ok_or_else(|| format!("{arg} needs a value\n{USAGE}"))
            };
            match arg.as_str() {
                "--requests" => sized.0 = Some(number(&arg, &value()?)?),
                "--sources" => sized.1 = Some(number(&arg, &value()?)?),
                "--seed" => options.seed = number(&arg, &value()?)?,
                "--threads" => options.threads = number(&arg, &value()?)?,
                "--log" => options.log = Some(PathBuf::from(value()?)),
                "--no-log" => options.log = None,
                "--markdown" => options.markdown = true,
                "--smoke" => options.smoke = true,
                _ => return Err(format!("`{arg}` is not an option\n{USAGE}")),
            }
        }
        if options.smoke {
            (options.requests, options.sources) = (1_000_000, 2_700);
        }
        options.requests = sized.0.unwrap_or(options.requests);
        options.sources = sized.1.unwrap_or(options.sources);
        options.check()
    }

    fn check(self) -> Result<Self, String> {
        if self.sources < 10 {
            return Err(format!(
                "--sources {}: at least 10, so that there is one of each kind",
                self.sources
            ));
        }
        if self.requests < self.sources {
            return Err(format!(
                "--requests {}: at least one for each source",
                self.requests
            ));
        }
        // Sums of counts and of errors are far from their bounds up to here.
        if self.requests > 100_000_000_000 {
            return Err(format!(
                "--requests {}: at most 100000000000",
                self.requests
            ));
        }
        if !(1..=64).contains(&self.threads) {
            return Err(format!("--threads {}: from 1 to 64", self.threads));
        }
        Ok(self)
    }
}

fn number<N: std::str::FromStr>(option: &str, text: &str) -> Result<N, String>
where
    N::Err: std::fmt::Display,
{
    text.parse()
        .map_err(|error| format!("{option} {text}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, String> {
        Options::parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn nothing_asked_for_is_the_full_study() {
        assert_eq!(parse(""), Ok(Options::default()));
        assert!(Options::default().requests >= 100_000_000);
    }

    #[test]
    fn smoke_is_smaller_and_can_still_be_sized() {
        let smoke = parse("--smoke").unwrap();
        assert_eq!((smoke.requests, smoke.sources), (1_000_000, 2_700));
        assert_eq!(parse("--requests 5000 --smoke").unwrap().requests, 5_000);
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_name() {
        for (line, named) in [
            ("--sources 3", "--sources 3"),
            ("--requests 100", "--requests 100"),
            ("--requests 1e9", "--requests 1e9"),
            ("--threads 0", "--threads 0"),
            ("--seed", "--seed needs a value"),
            ("--sead 3", "`--sead`"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.starts_with(named), "{error}");
        }
    }
}
