//! `tollgate check`: validates policy files and test files, and prints all problems or a summary.
//!
//! Files of envoyproxy/ratelimit are checked as one set, as its service loads them. Must not know: how files are validated.

use std::path::{Path, PathBuf};

use serde::Serialize;
use tollgate_envoy::config::{self, InvalidFiles};
use tollgate_policy::humanize::format_number;
use tollgate_policy::model::Policy;
use tollgate_policy::source::{Diagnostics, Warnings};

use crate::input::{self, FileKind, InputOptions, SourceFile};
use crate::json;
use crate::output::{Color, CommandError, print, print_error};
use crate::policy_tests;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Policy files or test files; `-` is stdin
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    input: InputOptions,
    /// Merge files of envoyproxy/ratelimit that have the same domain, like MERGE_DOMAIN_CONFIG
    #[arg(long)]
    merge_domains: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The result of one file, or of all files of envoyproxy/ratelimit.
#[derive(Debug)]
struct CheckResult {
    files: Vec<String>,
    kind: FileKind,
    result: Result<FileContents, Vec<Diagnostics>>,
}

/// The number of limits or tests in files.
#[derive(Debug)]
struct FileContents {
    limits: Option<usize>,
    tests: Option<usize>,
    summary: String,
    warnings: Option<Warnings>,
}

/// Checks files. Returns whether all of them are valid.
pub(crate) fn check(options: &Options, color: Color) -> Result<bool, CommandError> {
    let mut results = Vec::new();
    let mut envoy = Vec::new();
    for path in &options.files {
        match input::read(path, options.input) {
            Ok(source) if source.kind == FileKind::Envoy => envoy.push(source),
            Ok(source) => results.push(check_native(path, &source)),
            Err(problems) => results.push(CheckResult {
                files: vec![problems.file.to_string()],
                kind: FileKind::Policy,
                result: Err(vec![problems]),
            }),
        }
    }
    if !envoy.is_empty() {
        results.push(check_envoy_files(&envoy, options.merge_domains));
    }
    let is_valid = results.iter().all(|checked| checked.result.is_ok());
    if options.json {
        json::print_json(&check_report(is_valid, &results))?;
        return Ok(is_valid);
    }
    let colour = color.is_enabled_on_stderr();
    for checked in &results {
        match &checked.result {
            Ok(contents) => {
                if let Some(warnings) = &contents.warnings {
                    print_error(&warnings.render(colour));
                }
                print(&format!(
                    "{}: {}\n",
                    checked.files.join(", "),
                    contents.summary
                ))?;
            }
            Err(files) => files
                .iter()
                .for_each(|file| print_error(&file.render(colour))),
        }
    }
    Ok(is_valid)
}

fn check_native(path: &Path, source: &SourceFile) -> CheckResult {
    let result = match source.kind {
        FileKind::Tests => policy_tests::check(path, source).map(|tests| FileContents {
            limits: None,
            tests: Some(tests),
            summary: format!("ok, {}", pluralize(tests, "test")),
            warnings: None,
        }),
        _ => tollgate_policy::load_with_warnings(&source.text, &source.name, source.format)
            .map_err(|problems| vec![problems])
            .map(|(policy, warnings)| FileContents {
                limits: Some(policy.limits.len()),
                tests: None,
                summary: summary(&policy),
                warnings: Some(warnings),
            }),
    };
    CheckResult {
        files: vec![source.name.clone()],
        kind: source.kind,
        result,
    }
}

fn summary(policy: &Policy) -> String {
    let mut summary = format!("ok, {}", pluralize(policy.limits.len(), "limit"));
    for (count, list) in [
        (policy.deny.len(), "`deny`"),
        (policy.exempt.len(), "`exempt`"),
    ] {
        if count > 0 {
            summary += &format!(", {} in {list}", pluralize(count, "entry"));
        }
    }
    summary
}

fn check_envoy_files(sources: &[SourceFile], merge_domains: bool) -> CheckResult {
    let files: Vec<_> = sources
        .iter()
        .map(|source| (&*source.name, &*source.text))
        .collect();
    let options = config::LoadOptions {
        merge_domains,
        ..config::LoadOptions::default()
    };
    let result = config::load_with(&files, options);
    CheckResult {
        files: sources.iter().map(|source| source.name.clone()).collect(),
        kind: FileKind::Envoy,
        result: result
            .map_err(|InvalidFiles(problems)| problems)
            .map(|policy| FileContents {
                limits: Some(policy.rules().len()),
                tests: None,
                summary: format!(
                    "ok, {} in {} (in the format of envoyproxy/ratelimit)",
                    pluralize(policy.rules().len(), "limit"),
                    pluralize(policy.domains().count(), "domain"),
                ),
                warnings: None,
            }),
    }
}

fn pluralize(count: usize, what: &str) -> String {
    let what = match (count, what.strip_suffix('y')) {
        (1, _) => what.to_owned(),
        (_, Some(stem)) => format!("{stem}ies"),
        (_, None) => format!("{what}s"),
    };
    format!("{} {what}", format_number(count as u64))
}

/// The JSON output.
#[derive(Serialize)]
struct CheckReport<'a> {
    ok: bool,
    checked: Vec<CheckedFileReport<'a>>,
    #[serde(flatten)]
    wrong: json::ProblemReport,
    warnings: Vec<json::ReportedProblem>,
}

#[derive(Serialize)]
struct CheckedFileReport<'a> {
    files: &'a [String],
    kind: &'static str,
    ok: bool,
    limits: Option<usize>,
    tests: Option<usize>,
}

fn check_report(ok: bool, results: &[CheckResult]) -> CheckReport<'_> {
    let wrong = results
        .iter()
        .filter_map(|checked| checked.result.as_ref().err());
    let contents = results
        .iter()
        .filter_map(|checked| checked.result.as_ref().ok());
    let warnings = contents.filter_map(|contents| contents.warnings.as_ref());
    CheckReport {
        ok,
        checked: results
            .iter()
            .map(|checked| CheckedFileReport {
                files: &checked.files,
                kind: checked.kind.as_str(),
                ok: checked.result.is_ok(),
                limits: checked
                    .result
                    .as_ref()
                    .ok()
                    .and_then(|contents| contents.limits),
                tests: checked
                    .result
                    .as_ref()
                    .ok()
                    .and_then(|contents| contents.tests),
            })
            .collect(),
        wrong: json::problem_report(wrong.flatten()),
        warnings: json::problem_report(warnings.map(Warnings::as_diagnostics)).problems,
    }
}
