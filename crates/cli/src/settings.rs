//! `tollgate settings`: prints all settings of `serve` as Markdown, from the definitions that clap parses.
//!
//! A test compares `docs/settings.md` with the output. Must not know: what the settings do.

use clap::{Arg, Command};

use crate::output::{CommandError, print};

const INTRODUCTION: &str = "# Settings

After this page you can look up every setting of `tollgate serve`. [Operations](running.md) explains how they work together.
`tollgate settings > docs/settings.md` writes this page; do not edit it.

A setting is a flag or an environment variable; the flag wins. If a setting is invalid, the program prints which one and exits before
it listens.
";

/// Prints the settings of this command.
pub(crate) fn print_page(serve: &Command) -> Result<(), CommandError> {
    print(&page(serve))
}

fn page(serve: &Command) -> String {
    let mut page = INTRODUCTION.to_owned();
    let mut headings: Vec<&str> = Vec::new();
    for argument in settings(serve) {
        let heading = heading(argument);
        if !headings.contains(&heading) {
            headings.push(heading);
        }
    }
    for one in headings {
        page.push_str(&format!(
            "\n## {one}\n\n| flag | variable | default | meaning |\n|---|---|---|---|\n"
        ));
        for argument in settings(serve).filter(|argument| heading(argument) == one) {
            page.push_str(&row(argument));
        }
    }
    page
}

/// The arguments of this command, without those of all commands.
fn settings(serve: &Command) -> impl Iterator<Item = &Arg> {
    serve
        .get_arguments()
        .filter(|argument| !argument.is_hide_set())
        .filter(|argument| !matches!(argument.get_id().as_str(), "help" | "color"))
}

fn heading(argument: &Arg) -> &str {
    argument.get_help_heading().unwrap_or("General")
}

fn row(argument: &Arg) -> String {
    let flag = argument.get_long().unwrap_or_default();
    let value = argument.get_value_names().unwrap_or_default();
    let value: Vec<&str> = value.iter().map(clap::builder::Str::as_str).collect();
    let variable = argument.get_env().unwrap_or_default().to_string_lossy();
    let defaults: Vec<_> = argument
        .get_default_values()
        .iter()
        .map(|value| format!("`{}`", value.to_string_lossy()))
        .collect();
    let meaning = argument.get_help().map(ToString::to_string);
    let mut meaning = meaning.unwrap_or_default().replace('|', "\\|");
    let possible = argument.get_possible_values();
    if !possible.is_empty() {
        let names: Vec<_> = possible
            .iter()
            .map(|value| format!("`{}`", value.get_name()))
            .collect();
        meaning.push_str(&format!(". Possible: {}", names.join(", ")));
    }
    format!(
        "| `--{flag} {}` | `{variable}` | {} | {meaning} |\n",
        value.join(" "),
        defaults.join(" ")
    )
}
