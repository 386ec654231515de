//! `cargo xtask bench all`: every study, one after the other, and the page of benchmarks that is made of them.
//!
//! Prints markdown, or with `--write` replaces the generated parts of `docs/benchmarks.md`, `docs/benchmarks-appendix.md` and
//! `docs/img/growth.svg`. The results of each study are kept in cargo's target folder, and `--resume` goes on after one that failed.
//! Must not know: how anything is measured.

use std::path::Path;
use std::process::{Command, Stdio};

use super::measurements::Measurements;
use super::plot::Panel;
use super::{headline, machine, memory, page, plot, program_command, servers};
use crate::process;
use crate::workspace::Workspace;

/// A program that measures, and its part of the appendix.
struct Study {
    name: &'static str,
    /// The heading of its tables.
    title: &'static str,
    command: fn(&Workspace, &[String]) -> Result<Command, String>,
    /// Whether it writes a file of measurements.
    has_measurements: bool,
    /// Whether it prints tables as markdown. Otherwise what it prints is shown as it is.
    has_markdown: bool,
    /// A folder without which it is left out.
    folder: &'static str,
}

/// Add a row for a study that the page is to have.
const STUDIES: &[Study] = &[
    Study {
        name: "servers",
        title: "Servers",
        command: servers::command,
        has_measurements: true,
        has_markdown: true,
        folder: "bench",
    },
    Study {
        name: "growth",
        title: "Growth",
        command: |_, args| Ok(program_command("growth", args)),
        has_measurements: true,
        has_markdown: true,
        folder: "bench",
    },
    Study {
        name: "memory",
        title: "In one process, beside other limiters",
        command: |workspace, args| Ok(memory(workspace, args)),
        has_measurements: true,
        has_markdown: true,
        folder: "bench",
    },
    Study {
        name: "redis",
        title: "A decision over Redis beside the articles' script",
        command: |_, args| Ok(program_command("redis", args)),
        has_measurements: false,
        has_markdown: true,
        folder: "bench",
    },
    Study {
        name: "fleet",
        title: "A node of a fleet beside its parts",
        command: |_, args| Ok(program_command("fleet", args)),
        has_measurements: false,
        has_markdown: true,
        folder: "bench",
    },
    Study {
        name: "tower",
        title: "The tower layer beside other layers",
        command: |_, args| xtask_command("tower", args),
        has_measurements: false,
        has_markdown: false,
        folder: "bench/tower",
    },
];

/// Where panels come from: the workload, and the title of its panel and of its axis.
const PANELS: &[(&str, &str, &str)] = &[
    ("growth keys", "Keys", "keys in the store"),
    (
        "growth policy",
        "Policy",
        "limits in the policy, of which one applies",
    ),
    ("growth limits", "Limits", "limits that apply to a request"),
    ("growth key length", "Length of keys", "bytes of a key"),
    (
        "growth connections",
        "Connections",
        "connections, one request under way on each",
    ),
    (
        "growth connections p99",
        "Connections",
        "connections, one request under way on each",
    ),
    (
        "growth redis",
        "Way to Redis",
        "ms of round trip to Redis, 64 callers",
    ),
    (
        "growth redis time",
        "Way to Redis",
        "ms of round trip to Redis, 64 callers",
    ),
    ("growth threads", "Threads", "threads"),
];

/// What to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct AllOptions {
    is_quick: bool,
    is_written: bool,
    /// Studies whose results are there from an earlier run are not run again.
    is_resumed: bool,
}

impl AllOptions {
    fn parse(args: &[String]) -> Result<Self, String> {
        let mut options = Self::default();
        for word in args {
            match word.as_str() {
                "--quick" => options.is_quick = true,
                "--write" => options.is_written = true,
                "--resume" => options.is_resumed = true,
                // What it prints is markdown anyway; other studies have this flag.
                "--markdown" => {}
                word => {
                    return Err(format!(
                        "`bench all` knows --quick, --markdown, --resume and --write, not `{word}`"
                    ));
                }
            }
        }
        Ok(options)
    }
}

/// Runs all studies and makes the page.
pub(super) fn run(workspace: &Workspace, args: &[String]) -> Result<(), String> {
    let options = AllOptions::parse(args)?;
    #[expect(
        clippy::disallowed_types,
        reason = "times the developer's own wait; no product code runs on it"
    )]
    let began = std::time::Instant::now();
    let folder = workspace.target.join("bench");
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut measurements = Measurements::default();
    let mut appendix = String::new();
    let is_there = |study: &&Study| workspace.root.join(study.folder).is_dir();
    for study in STUDIES.iter().filter(is_there) {
        let tables = study.run(workspace, options, &folder, &mut measurements)?;
        appendix += &format!("## {}\n\n{}\n\n", study.title, tables.trim());
    }
    // With `--resume` only the studies that were left are in it.
    let run = machine::description(options.is_quick, began.elapsed())?;
    let table = headline::table(&measurements);
    let top = format!("{run}\n{table}\n![Growth of the cost of a decision](img/growth.svg)\n");
    let losses = headline::losses(&measurements);
    let picture = plot::render("Growth of the cost of a decision", &panels(&measurements));
    if !options.is_written {
        println!("{top}\nWhere a peer is ahead:\n\n{losses}\n{appendix}");
        return save(&folder.join("growth.svg"), &picture);
    }
    let docs = workspace.root.join("docs");
    page::replace(&docs.join("benchmarks.md"), "headline", &top)?;
    page::replace(&docs.join("benchmarks.md"), "losses", &losses)?;
    let long = docs.join("benchmarks-appendix.md");
    page::replace(&long, "tables", &format!("{run}\n{appendix}"))?;
    save(&docs.join("img/growth.svg"), &picture)
}

impl Study {
    /// Its tables as markdown. What it measured is added to all measurements.
    fn run(
        &self,
        workspace: &Workspace,
        options: AllOptions,
        folder: &Path,
        measurements: &mut Measurements,
    ) -> Result<String, String> {
        let length = if options.is_quick { "quick" } else { "full" };
        let file = |ending: &str| folder.join(format!("{}-{length}.{ending}", self.name));
        let (tables, numbers) = (file("md"), file("tsv"));
        if !(options.is_resumed && tables.is_file()) {
            let text = self.measure(workspace, options, &numbers)?;
            // Last, so that a study that failed is not taken for one that ended.
            save(&tables, &text)?;
        }
        if self.has_measurements {
            measurements.read(&read(&numbers)?)?;
        }
        read(&tables)
    }

    fn measure(
        &self,
        workspace: &Workspace,
        options: AllOptions,
        numbers: &Path,
    ) -> Result<String, String> {
        let mut args = Vec::new();
        if self.has_markdown {
            args.push("--markdown".to_owned());
        }
        if options.is_quick {
            args.push("--quick".to_owned());
        }
        if self.has_measurements {
            args.extend(["--measurements".to_owned(), numbers.display().to_string()]);
        }
        let mut command = (self.command)(workspace, &args)?;
        eprintln!("== {}", self.title);
        // Progress is shown while it runs; tables are kept.
        let (tables, _) = process::capture(command.stderr(Stdio::inherit()))?;
        Ok(if self.has_markdown {
            tables
        } else {
            verbatim(&tables)
        })
    }
}

/// A study that a command of this program drives.
fn xtask_command(name: &str, args: &[String]) -> Result<Command, String> {
    let this = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = Command::new(this);
    command.args(["bench", name]).args(args);
    Ok(command)
}

/// Columns as they are, without the commands that were started.
fn verbatim(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.starts_with("$ "));
    format!("```text\n{}\n```", lines.collect::<Vec<_>>().join("\n"))
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn save(path: &Path, text: &str) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(failed)?;
    }
    std::fs::write(path, text).map_err(failed)?;
    println!("written: {}", path.display());
    Ok(())
}

/// The panels of the page.
fn panels(measurements: &Measurements) -> Vec<Panel> {
    let panel = |(workload, title, axis): &(&str, &str, &str)| {
        Panel::from_measurements(measurements, workload, title, axis)
    };
    PANELS.iter().map(panel).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_a_wrong_one_is_named() {
        let parse = |line: &str| {
            let words: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
            AllOptions::parse(&words)
        };
        assert!(
            parse("--quick --write").is_ok_and(|options| options.is_quick && options.is_written)
        );
        assert_eq!(parse("--markdown"), Ok(AllOptions::default()));
        assert!(parse("--resume").is_ok_and(|options| options.is_resumed));
        assert!(parse("--fast").is_err_and(|error| error.contains("`--fast`")));
    }

    #[test]
    fn columns_are_shown_without_the_commands_that_made_them() {
        let text = "$ cargo build\nlayer ns\nbare  10\n";
        assert_eq!(verbatim(text), "```text\nlayer ns\nbare  10\n```");
    }

    #[test]
    fn points_of_one_line_stay_together() {
        let mut all = Measurements::default();
        all.read(
            "growth keys\tlibrary check\tours\t1000\tns\t20\t19\t21\n\
             growth keys\tpolicy engine\tours\t1000\tns\t200\t190\t210\n\
             growth keys\tlibrary check\tours\t10000\tns\t22\t21\t23\n",
        )
        .unwrap();
        let panels = panels(&all);
        let lines = &panels[0].lines;
        assert_eq!((lines.len(), lines[0].points.len()), (2, 2));
        assert!(panels[1].lines.is_empty());
    }
}
