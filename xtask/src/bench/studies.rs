//! The studies of `cargo xtask bench all` and `bench growth`: programs that measure, and the results that they leave.
//!
//! The tables, the measurements and a record of each study are kept in cargo's target folder, so that a page can be made of
//! studies that ran one by one. Must not know: how anything is measured, pages, plots.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::measurements::Measurements;
use super::run_record::RunRecord;
use super::{gateway, memory, program_command, servers};
use crate::process;
use crate::workspace::Workspace;

/// A part of a program that measures, and its part of the appendix.
pub(super) struct Study {
    /// The name on the command line and of its files.
    pub(super) name: &'static str,
    /// The heading of its tables. Studies with the same heading follow each other.
    pub(super) title: &'static str,
    program: Program,
    /// The words that name this part to its program.
    parts: &'static [&'static str],
    /// Whether the picture of growth is made of it.
    pub(super) is_growth: bool,
}

/// A program that measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Program {
    Servers,
    Gateway,
    Growth,
    Memory,
    Redis,
    Fleet,
    Tower,
}

const fn study(
    name: &'static str,
    title: &'static str,
    program: Program,
    parts: &'static [&'static str],
) -> Study {
    Study {
        name,
        title,
        program,
        parts,
        is_growth: matches!(program, Program::Growth),
    }
}

const SERVERS: &str = "Servers";
const GROWTH: &str = "Growth";
const IN_PROCESS: &str = "In one process, beside other limiters";

/// Add a row for a study that the page is to have.
pub(super) const STUDIES: &[Study] = &[
    study("grpc", SERVERS, Program::Servers, &["grpc"]),
    study("resp", SERVERS, Program::Servers, &["resp", "pipelined"]),
    study("http", SERVERS, Program::Servers, &["http"]),
    study("over-redis", SERVERS, Program::Servers, &["fleet"]),
    study("workers", SERVERS, Program::Servers, &["workers"]),
    study("resident", SERVERS, Program::Servers, &["memory"]),
    study(
        "gateway",
        "The gateway beside other proxies",
        Program::Gateway,
        &[],
    ),
    Study {
        is_growth: true,
        ..study("connections", GROWTH, Program::Servers, &["connections"])
    },
    study("keys", GROWTH, Program::Growth, &["keys"]),
    study("key-length", GROWTH, Program::Growth, &["key-length"]),
    study("threads", GROWTH, Program::Growth, &["threads"]),
    study("policy", GROWTH, Program::Growth, &["policy"]),
    study("limits", GROWTH, Program::Growth, &["limits"]),
    study("redis-latency", GROWTH, Program::Growth, &["redis"]),
    study("decisions", IN_PROCESS, Program::Memory, &["decisions"]),
    study(
        "batches",
        IN_PROCESS,
        Program::Memory,
        &["limits", "engine"],
    ),
    study("bytes-per-key", IN_PROCESS, Program::Memory, &["resident"]),
    study("latency", IN_PROCESS, Program::Memory, &["latency"]),
    study(
        "redis",
        "A decision over Redis beside the articles' script",
        Program::Redis,
        &[],
    ),
    study(
        "fleet",
        "A node of a fleet beside its parts",
        Program::Fleet,
        &[],
    ),
    study(
        "tower",
        "The tower layer beside other layers",
        Program::Tower,
        &[],
    ),
];

/// Which studies run and how long, and whether pages are written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct StudyOptions {
    pub(super) is_quick: bool,
    pub(super) is_written: bool,
    /// Studies whose results are there from an earlier run are not run again.
    is_resumed: bool,
    /// Leaves out the peers that have to be installed.
    is_without_peers: bool,
    /// Flags of `bench servers` that name programs of peers, each followed by its program.
    programs_of_peers: Vec<String>,
    /// Only these run. The results of the others come from earlier runs.
    only: Vec<String>,
}

impl StudyOptions {
    /// Parses the arguments of `command`, which knows these studies.
    pub(super) fn parse(command: &str, args: &[String], known: &[&Study]) -> Result<Self, String> {
        let mut options = Self::default();
        let mut words = args.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                flag if servers::PROGRAMS_OF_PEERS.contains(&flag) => {
                    let program = words
                        .next()
                        .ok_or_else(|| format!("`{flag}` needs a program"))?;
                    let words = [flag.to_owned(), program.clone()];
                    options.programs_of_peers.extend(words);
                }
                "--quick" => options.is_quick = true,
                "--write" => options.is_written = true,
                "--resume" => options.is_resumed = true,
                servers::WITHOUT_PEERS => options.is_without_peers = true,
                // The output is markdown anyway; other commands have this flag.
                "--markdown" => {}
                word if known.iter().any(|study| study.name == word) => {
                    options.only.push(word.to_owned());
                }
                word => {
                    let names: Vec<&str> = known.iter().map(|study| study.name).collect();
                    return Err(format!(
                        "`bench {command}` knows --limitador PROGRAM, --ratelimit PROGRAM, --redis-cell MODULE, --quick, --resume, --without-peers, --write and {}, not `{word}`",
                        names.join(", ")
                    ));
                }
            }
        }
        Ok(options)
    }

    const fn length(&self) -> &'static str {
        if self.is_quick { "quick" } else { "full" }
    }

    fn runs(&self, study: &Study, has_results: bool) -> bool {
        match self.only.is_empty() {
            true => !(self.is_resumed && has_results),
            false => self.only.iter().any(|name| name == study.name),
        }
    }
}

/// The results of one study.
pub(super) struct StudyResults {
    pub(super) title: &'static str,
    /// Its tables as markdown.
    pub(super) tables: String,
    pub(super) record: RunRecord,
}

/// The results of all studies that have any, and the names of those that have none.
#[derive(Default)]
pub(super) struct Results {
    pub(super) studies: Vec<StudyResults>,
    pub(super) measurements: Measurements,
    pub(super) missing: Vec<&'static str>,
}

/// Runs what the options name, and returns its results and those of earlier runs.
pub(super) fn run(
    workspace: &Workspace,
    options: &StudyOptions,
    studies: &[&'static Study],
) -> Result<Results, String> {
    let folder = workspace.target.join("bench");
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut results = Results::default();
    for study in studies {
        let files = ResultFiles::new(&folder, study.name, options.length());
        if options.runs(study, files.record.is_file()) {
            study.measure(workspace, options, &files)?;
        }
        if !files.record.is_file() {
            results.missing.push(study.name);
            continue;
        }
        if study.program.has_measurements() {
            results.measurements.read(&read(&files.measurements)?)?;
        }
        results.studies.push(StudyResults {
            title: study.title,
            tables: read(&files.tables)?,
            record: RunRecord::parse(&read(&files.record)?)?,
        });
    }
    Ok(results)
}

/// The files of one study.
struct ResultFiles {
    tables: PathBuf,
    measurements: PathBuf,
    /// Written last: a study without it has failed or never ran.
    record: PathBuf,
}

impl ResultFiles {
    fn new(folder: &Path, name: &str, length: &str) -> Self {
        let file = |ending: &str| folder.join(format!("{name}-{length}.{ending}"));
        Self {
            tables: file("md"),
            measurements: file("tsv"),
            record: file("run"),
        }
    }
}

impl Study {
    fn measure(
        &self,
        workspace: &Workspace,
        options: &StudyOptions,
        files: &ResultFiles,
    ) -> Result<(), String> {
        let _not_there = std::fs::remove_file(&files.record).is_err();
        let args = self.args(options, &files.measurements);
        // What it needs is built and installed before the clock starts.
        let mut command = self.program.command(workspace, &args)?;
        eprintln!("== {}: {}", self.title, self.name);
        let record = RunRecord::start()?;
        // Progress is shown while it runs; tables are kept.
        let (text, _) = process::capture(command.stderr(Stdio::inherit()))?;
        let is_markdown = self.program != Program::Tower;
        save(
            &files.tables,
            &if is_markdown { text } else { verbatim(&text) },
        )?;
        save(&files.record, &record.finish().to_string())
    }

    /// The arguments of its program.
    fn args(&self, options: &StudyOptions, measurements: &Path) -> Vec<String> {
        let mut args: Vec<String> = self.parts.iter().map(|part| (*part).to_owned()).collect();
        if self.program != Program::Tower {
            args.push("--markdown".to_owned());
        }
        if options.is_quick {
            args.push("--quick".to_owned());
        }
        if self.program.has_measurements() {
            let file = measurements.display().to_string();
            args.extend(["--measurements".to_owned(), file]);
        }
        if self.program == Program::Servers {
            if options.is_without_peers {
                args.push(servers::WITHOUT_PEERS.to_owned());
            }
            args.extend_from_slice(&options.programs_of_peers);
        }
        args
    }
}

impl Program {
    /// Whether it writes a file of measurements.
    const fn has_measurements(self) -> bool {
        matches!(
            self,
            Self::Servers | Self::Gateway | Self::Growth | Self::Memory
        )
    }

    fn command(self, workspace: &Workspace, args: &[String]) -> Result<Command, String> {
        match self {
            Self::Servers => servers::command(workspace, args),
            Self::Gateway => gateway::command(workspace, args),
            Self::Growth => built(program_command("growth", args)),
            Self::Memory => built(memory(workspace, args)),
            Self::Redis => built(program_command("redis", args)),
            Self::Fleet => built(program_command("fleet", args)),
            Self::Tower => {
                let this = std::env::current_exe().map_err(|error| error.to_string())?;
                let mut command = Command::new(this);
                command.args(["bench", "tower"]).args(args);
                Ok(command)
            }
        }
    }
}

/// A `cargo run` whose program is built already, so that no study's time is that of building.
fn built(run: Command) -> Result<Command, String> {
    process::run(&mut process::build_of(&run))?;
    Ok(run)
}

/// Columns as they are, without the commands that were started.
fn verbatim(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.starts_with("$ "));
    format!("```text\n{}\n```", lines.collect::<Vec<_>>().join("\n"))
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Writes a file and the folders that it lies in.
pub(super) fn save(path: &Path, text: &str) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(failed)?;
    }
    std::fs::write(path, text).map_err(failed)?;
    eprintln!("written: {}", path.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<StudyOptions, String> {
        let words: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
        StudyOptions::parse("all", &words, &STUDIES.iter().collect::<Vec<_>>())
    }

    #[test]
    fn options_are_read_and_a_wrong_one_is_named() {
        assert!(
            parse("--quick --write").is_ok_and(|options| options.is_quick && options.is_written)
        );
        assert_eq!(parse("--markdown"), Ok(StudyOptions::default()));
        assert!(parse("--fast").is_err_and(|error| error.contains("`--fast`")));
        assert!(parse("everything").is_err_and(|error| error.contains("redis-latency")));
        for flag in servers::PROGRAMS_OF_PEERS {
            assert!(parse(flag).is_err_and(|error| error.contains("needs a program")));
            assert!(parse("--fast").is_err_and(|error| error.contains(flag)));
        }
    }

    #[test]
    fn programs_of_peers_are_given_to_the_studies_of_servers_only() {
        let options =
            parse("--limitador a --ratelimit b --redis-cell c --quick --without-peers").unwrap();
        let args = |program| {
            let study = study("one", "One", program, &["part"]);
            study.args(&options, Path::new("file.tsv")).join(" ")
        };
        assert_eq!(
            args(Program::Servers),
            "part --markdown --quick --measurements file.tsv --without-peers --limitador a --ratelimit b --redis-cell c"
        );
        assert_eq!(args(Program::Redis), "part --markdown --quick");
        assert_eq!(args(Program::Tower), "part --quick");
    }

    #[test]
    fn named_studies_run_and_resuming_leaves_out_those_with_results() {
        let [first, second] = [&STUDIES[0], &STUDIES[1]];
        let all = parse("").unwrap();
        assert!(all.runs(first, true) && all.runs(second, false));
        let resumed = parse("--resume").unwrap();
        assert!(!resumed.runs(first, true) && resumed.runs(second, false));
        let one = parse(first.name).unwrap();
        assert!(one.runs(first, true) && !one.runs(second, false));
    }

    #[test]
    fn every_study_has_a_name_of_its_own_and_headings_stand_together() {
        let mut titles: Vec<&str> = STUDIES.iter().map(|study| study.title).collect();
        titles.dedup();
        let mut names: Vec<&str> = STUDIES.iter().map(|study| study.name).collect();
        for mut list in [titles, std::mem::take(&mut names)] {
            let count = list.len();
            list.sort_unstable();
            list.dedup();
            assert_eq!(list.len(), count, "{list:?}");
        }
    }

    #[test]
    fn columns_are_shown_without_the_commands_that_made_them() {
        let text = "$ cargo build\nlayer ns\nbare  10\n";
        assert_eq!(verbatim(text), "```text\nlayer ns\nbare  10\n```");
    }
}
