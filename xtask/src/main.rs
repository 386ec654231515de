//! `cargo xtask`: the commands of people who work on this repository.
//!
//! This file reads the first word and hands the rest on. It knows no product code: xtask drives cargo and reads files.

mod bench;
mod book;
mod callgrind;
mod chaos;
mod conventions;
mod dist;
mod extra;
mod fresh_crate;
mod instruction_counts;
mod layers;
mod links;
mod lock_files;
mod peer_tests;
mod peers;
mod process;
mod protos;
mod quotes;
mod required_programs;
mod soak;
mod steps;
mod table;
mod test;
mod workspace;

use std::process::ExitCode;

/// One command: its name, what `help` says of it, and the function that runs it with the words after its name.
struct Command {
    usage: &'static str,
    about: &'static str,
    run: fn(&[String]) -> Result<(), String>,
}

const COMMANDS: &[Command] = &[
    Command {
        usage: "test [--fast | --peers]",
        about: "everything CI runs; --fast leaves out documents, doc tests and measurements; --peers runs what CI \
                leaves out: the server beside real gateways, clients and fuzzers",
        run: test::run,
    },
    Command {
        usage: "peers",
        about: "installs the programs that tests start: distribution packages, and Python packages under cargo's target folder",
        run: peers::run,
    },
    Command {
        usage: "fresh-crate",
        about: "a crate made of the first example in docs/tower.md builds, runs, and limits curl",
        run: |args| process::no_arguments("fresh-crate", args).and_then(|()| fresh_crate::check()),
    },
    Command {
        usage: "protos",
        about: "makes the descriptor set that gRPC reflection serves out of crates/server/proto, with a pinned protoc",
        run: protos::run,
    },
    Command {
        usage: "check-layers",
        about: "dependencies between crates point the way the table in xtask/src/layers.rs says",
        run: layers::run,
    },
    Command {
        usage: "check-conventions",
        about: "file sizes, module headers, names, prose, and documents that name what exists",
        run: conventions::run,
    },
    Command {
        usage: "guarantees",
        about: "writes the lists of tests in docs/guarantees.md from the names of the tests",
        run: conventions::guarantees::run,
    },
    Command {
        usage: "book",
        about: "checks the links of all documents and builds the guide in docs/ with mdbook into cargo's target folder",
        run: book::run,
    },
    Command {
        usage: "bench [instructions [--check|--save] | accuracy [args…] | flood [args…] | memory [args…] | redis [args…] | fleet [args…] | servers [args…] | growth [args…] | overload [--write | --real-time [--quick] [--without-peers]] | gateway [args…] | tower [args…] | client [--real-time[=full]] | all [--quick] [--resume] [--write] [studies…]]",
        about: "instruction counts per decision, the accuracy study, a flood of keys, the stores and the server beside their peers, \
                a fleet on one Redis beside what it is made of (also `bench --redis`), how costs grow, overload in simulated time, the pacing client; `all` runs what \
                docs/benchmarks.md is made of, and --write writes it",
        run: bench::run,
    },
    Command {
        usage: "chaos --minutes N [--seed S] [--only NAME]",
        about: "every scenario of faults again and again, in random order with random seeds, and a report of what came of it",
        run: chaos::run,
    },
    Command {
        usage: "mixed-versions --minutes N",
        about: "a rolling upgrade: builds the version before this one, and runs servers of both on one Redis for so long",
        run: peer_tests::previous_version::run,
    },
    Command {
        usage: "soak --minutes N",
        about: "clients of all kinds on the gateway; its memory must not grow, and its open files must be as before",
        run: soak::run,
    },
    Command {
        usage: "dist [--smoke] [--binary PATH] [--target TRIPLE]",
        about: "a release as one archive in cargo's target folder: a static program, manual pages, completions, licences, a bill of \
                materials, a checksum; --binary packs a program that exists; --smoke packs the one that tests \
                have built, and looks at the archive",
        run: dist::run,
    },
    Command {
        usage: "extra [miri|mutants|deny|fuzz|loom|benches] [--seconds N] [args…]",
        about: "slow checks that need tools of their own; says how to install what is missing",
        run: extra::run,
    },
    Command {
        usage: "help",
        about: "this list",
        run: help,
    },
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match dispatch(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(args: &[String]) -> Result<(), String> {
    let Some((name, rest)) = args.split_first() else {
        help(&[])?;
        return Err("say which command to run".to_owned());
    };
    let name = if name == "--help" || name == "-h" {
        "help"
    } else {
        name
    };
    let command = COMMANDS
        .iter()
        .find(|command| command.usage.split(' ').next() == Some(name))
        .ok_or_else(|| format!("there is no command `{name}`; `cargo xtask help` lists them"))?;
    (command.run)(rest)
}

fn help(args: &[String]) -> Result<(), String> {
    process::no_arguments("help", args)?;
    for command in COMMANDS {
        println!("cargo xtask {}\n    {}", command.usage, command.about);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn help_is_found_by_its_three_names() {
        for name in ["help", "--help", "-h"] {
            assert_eq!(dispatch(&words(name)), Ok(()), "{name}");
        }
    }

    #[test]
    fn a_wrong_word_is_an_error_that_names_it() {
        assert!(dispatch(&words("tset")).unwrap_err().contains("`tset`"));
        assert!(dispatch(&[]).is_err());
    }

    #[test]
    fn words_that_a_command_does_not_know_are_errors() {
        for line in [
            "help now",
            "test --quick",
            "test --fast --peers",
            "peers --all",
            "check-layers --fix",
            "check-conventions all",
            "bench everything",
            "bench all --fast",
            "bench",
            "book --open",
            "bench instructions --chekc",
            "bench instructions --check --save",
            "soak",
            "chaos",
            "chaos --minutes soon",
            "chaos --minutes 1 --everything",
            "mixed-versions",
            "mixed-versions --minutes soon",
            "dist --binary",
            "dist now please",
            "dist --smoke --target a",
            "extra valgrind",
            "extra fuzz --seconds soon",
            "extra --seconds 5",
        ] {
            assert!(dispatch(&words(line)).is_err(), "{line}");
        }
    }
}
