//! The command line options. Must not know: what is measured.

use std::path::PathBuf;

/// Which parts to run, how often and how large.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) markdown: bool,
    /// Interleaved repetitions.
    pub(crate) rounds: usize,
    /// Interleaved repetitions of the open model, for latencies.
    pub(crate) latency_rounds: usize,
    /// Questions in one lap where each is sent by itself; pipelined, half as many: a peer that stalls takes
    /// seconds for them.
    pub(crate) requests: usize,
    /// Keys of the pattern with many, and of the study of memory.
    pub(crate) keys: u32,
    /// The most connections that are open at a time.
    pub(crate) idle: usize,
    /// The folder of the programs, which `cargo xtask bench servers` has built.
    pub(crate) tollgate: PathBuf,
    /// Peers that `cargo xtask bench servers` has installed. One that is not named is left out.
    pub(crate) throttlecrab: Option<PathBuf>,
    pub(crate) envoy: Option<PathBuf>,
    pub(crate) pingora: Option<PathBuf>,
    /// Peers that no package registry has as programs, which the caller has built.
    pub(crate) limitador: Option<PathBuf>,
    /// envoyproxy/ratelimit.
    pub(crate) ratelimit: Option<PathBuf>,
    /// The module redis-cell.
    pub(crate) redis_cell: Option<PathBuf>,
    /// A file that is to have every measurement.
    pub(crate) measurements: Option<PathBuf>,
    pub(crate) parts: Vec<Part>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Resp,
    Pipelined,
    Http,
    Grpc,
    Workers,
    Memory,
    Fleet,
    Connections,
    /// Proxies before an upstream, which `cargo xtask bench gateway` runs.
    Gateway,
}

const USAGE: &str = "usage: bench servers [--quick] [--markdown] [--rounds N] [--requests N] [--keys N] [--measurements FILE] [--limitador PROGRAM] \
                     [--ratelimit PROGRAM] [--redis-cell MODULE] [resp] [pipelined] [http] [grpc] [workers] [memory] [fleet] [connections] [gateway]";

const ALL: [(&str, Part); 9] = [
    ("resp", Part::Resp),
    ("pipelined", Part::Pipelined),
    ("http", Part::Http),
    ("grpc", Part::Grpc),
    ("workers", Part::Workers),
    ("memory", Part::Memory),
    ("fleet", Part::Fleet),
    ("connections", Part::Connections),
    ("gateway", Part::Gateway),
];

impl Options {
    /// Reads the words; with no part named, all run but the gateway, which is a study of its own.
    pub(crate) fn parse(words: &[String]) -> Result<Self, String> {
        let mut options = Self {
            markdown: false,
            rounds: 7,
            latency_rounds: 3,
            requests: 40_000,
            keys: 1_000_000,
            idle: 10_000,
            tollgate: PathBuf::new(),
            throttlecrab: None,
            envoy: None,
            pingora: None,
            limitador: None,
            ratelimit: None,
            redis_cell: None,
            measurements: None,
            parts: Vec::new(),
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || {
                words
                    .next()
                    .ok_or_else(|| format!("`{word}` needs a value"))
            };
            match word.as_str() {
                "--quick" => options.shorten(),
                "--markdown" => options.markdown = true,
                "--rounds" => options.rounds = number(word, value()?)?,
                "--requests" => options.requests = number(word, value()?)?,
                "--keys" => options.keys = number(word, value()?)?,
                "--measurements" => options.measurements = Some(value()?.into()),
                "--tollgate" => options.tollgate = value()?.into(),
                "--envoy" => options.envoy = Some(value()?.into()),
                "--pingora" => options.pingora = Some(value()?.into()),
                "--limitador" => options.limitador = Some(value()?.into()),
                "--ratelimit" => options.ratelimit = Some(value()?.into()),
                "--redis-cell" => options.redis_cell = Some(value()?.into()),
                "--throttlecrab" => options.throttlecrab = Some(value()?.into()),
                word => match ALL.iter().find(|(name, _)| *name == word) {
                    Some((_, part)) => options.parts.push(*part),
                    None => return Err(format!("`{word}` is unknown\n{USAGE}")),
                },
            }
        }
        if options.parts.is_empty() {
            let parts = ALL.iter().map(|(_, part)| *part);
            options.parts = parts.filter(|part| *part != Part::Gateway).collect();
        }
        Ok(options)
    }

    /// Keys where there are many: so many that they do not fit into the caches of a core.
    pub(crate) fn many(&self) -> u32 {
        self.keys.min(100_000)
    }

    /// Shows that everything runs. The numbers mean little.
    fn shorten(&mut self) {
        self.rounds = 3;
        self.latency_rounds = 1;
        self.requests = 8_000;
        self.keys = 20_000;
        self.idle = 1_000;
    }
}

fn number<T: TryFrom<u64>>(word: &str, value: &str) -> Result<T, String> {
    let number = value
        .parse::<u64>()
        .ok()
        .filter(|number| (1..=10_000_000).contains(number));
    let number = number.and_then(|number| T::try_from(number).ok());
    number.ok_or_else(|| format!("{word}: `{value}` is not a whole number from 1 to 10000000"))
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
        assert_eq!(parse("").unwrap().parts.len(), 8);
        let http = parse("--rounds 3 --requests 500 http").unwrap();
        assert_eq!((http.rounds, http.requests), (3, 500));
        assert_eq!(http.parts, [Part::Http]);
    }

    #[test]
    fn programs_of_peers_are_named_and_one_without_a_name_is_left_out() {
        let options =
            parse("--limitador a/limitador --ratelimit b/ratelimit --redis-cell c/cell.so fleet")
                .unwrap();
        assert_eq!(options.limitador, Some(PathBuf::from("a/limitador")));
        assert_eq!(options.ratelimit, Some(PathBuf::from("b/ratelimit")));
        assert_eq!(options.redis_cell, Some(PathBuf::from("c/cell.so")));
        assert_eq!(options.parts, [Part::Fleet]);
        let without = parse("fleet").unwrap();
        assert_eq!((without.limitador, without.ratelimit), (None, None));
    }

    #[test]
    fn what_is_not_understood_is_named() {
        for (line, named) in [
            ("--fast", "--fast"),
            ("--rounds", "--rounds"),
            ("--rounds 0", "`0`"),
            ("--ratelimit", "`--ratelimit` needs a value"),
            ("--keys many", "`many`"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(named), "{error}");
        }
    }
}
