//! `tollgate check`: everything that is wrong with policy files and files of their tests, or how much they say.
//!
//! Files of envoyproxy/ratelimit are checked as one set, as its service would load them. Must not know: how anything is
//! checked.

use std::path::{Path, PathBuf};

use serde::Serialize;
use tollgate_envoy::config::{self, FilesRefused};
use tollgate_policy::model::Policy;
use tollgate_policy::source::Problems;
use tollgate_policy::words_for::number;

use crate::input::{self, How, Kind, Source};
use crate::json;
use crate::output::{Color, Failure, complain, print};
use crate::testing;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Policy files; `-` is stdin
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    how: How,
    /// Let several files of envoyproxy/ratelimit describe one domain, as MERGE_DOMAIN_CONFIG does
    #[arg(long)]
    merge_domains: bool,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
}

/// What came of one file, or of all files of envoyproxy/ratelimit.
#[derive(Debug)]
struct Checked {
    files: Vec<String>,
    kind: Kind,
    result: Result<Contents, Vec<Problems>>,
}

/// How much files say.
#[derive(Debug)]
struct Contents {
    limits: Option<usize>,
    tests: Option<usize>,
    summary: String,
}

/// Checks files. Answers whether all of them are right.
pub(crate) fn check(options: &Options, color: Color) -> Result<bool, Failure> {
    let mut all = Vec::new();
    let mut envoy = Vec::new();
    for path in &options.files {
        match input::read(path, options.how) {
            Ok(source) if source.kind == Kind::Envoy => envoy.push(source),
            Ok(source) => all.push(native(path, &source)),
            Err(problems) => all.push(Checked {
                files: vec![problems.file.to_string()],
                kind: Kind::Policy,
                result: Err(vec![problems]),
            }),
        }
    }
    if !envoy.is_empty() {
        all.push(set(&envoy, options.merge_domains));
    }
    let is_right = all.iter().all(|checked| checked.result.is_ok());
    if options.json {
        json::answer(&answer(is_right, &all))?;
        return Ok(is_right);
    }
    let colour = color.on(&std::io::stderr());
    for checked in &all {
        match &checked.result {
            Ok(contents) => {
                print(&format!(
                    "{}: {}\n",
                    checked.files.join(", "),
                    contents.summary
                ))?;
            }
            Err(files) => files.iter().for_each(|file| complain(&file.render(colour))),
        }
    }
    Ok(is_right)
}

fn native(path: &Path, source: &Source) -> Checked {
    let result = match source.kind {
        Kind::Tests => testing::check(path, source).map(|tests| Contents {
            limits: None,
            tests: Some(tests),
            summary: format!("ok, {}", counted(tests, "test")),
        }),
        _ => tollgate_policy::load(&source.text, &source.name, source.format)
            .map_err(|problems| vec![problems])
            .map(|policy| Contents {
                limits: Some(policy.limits.len()),
                tests: None,
                summary: summary(&policy),
            }),
    };
    Checked {
        files: vec![source.name.clone()],
        kind: source.kind,
        result,
    }
}

fn summary(policy: &Policy) -> String {
    let mut summary = format!("ok, {}", counted(policy.limits.len(), "limit"));
    for (count, list) in [
        (policy.deny.len(), "`deny`"),
        (policy.exempt.len(), "`exempt`"),
    ] {
        if count > 0 {
            summary += &format!(", {} in {list}", counted(count, "entry"));
        }
    }
    summary
}

fn set(sources: &[Source], merge_domains: bool) -> Checked {
    let files: Vec<_> = sources
        .iter()
        .map(|source| (&*source.name, &*source.text))
        .collect();
    let options = config::Options {
        merge_domains,
        ..config::Options::default()
    };
    let result = config::load_with(&files, options);
    Checked {
        files: sources.iter().map(|source| source.name.clone()).collect(),
        kind: Kind::Envoy,
        result: result
            .map_err(|FilesRefused(problems)| problems)
            .map(|policy| Contents {
                limits: Some(policy.rules().len()),
                tests: None,
                summary: format!(
                    "ok, {} in {} (in the format of envoyproxy/ratelimit)",
                    counted(policy.rules().len(), "limit"),
                    counted(policy.domains().count(), "domain"),
                ),
            }),
    }
}

fn counted(count: usize, what: &str) -> String {
    let what = match (count, what.strip_suffix('y')) {
        (1, _) => what.to_owned(),
        (_, Some(stem)) => format!("{stem}ies"),
        (_, None) => format!("{what}s"),
    };
    format!("{} {what}", number(count as u64))
}

/// The answer for programs.
#[derive(Serialize)]
struct Answer<'a> {
    ok: bool,
    checked: Vec<CheckedAnswer<'a>>,
    #[serde(flatten)]
    wrong: json::Wrong,
}

#[derive(Serialize)]
struct CheckedAnswer<'a> {
    files: &'a [String],
    kind: &'static str,
    ok: bool,
    limits: Option<usize>,
    tests: Option<usize>,
}

fn answer(ok: bool, all: &[Checked]) -> Answer<'_> {
    let wrong = all
        .iter()
        .filter_map(|checked| checked.result.as_ref().err());
    Answer {
        ok,
        checked: all
            .iter()
            .map(|checked| CheckedAnswer {
                files: &checked.files,
                kind: checked.kind.word(),
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
        wrong: json::wrong(wrong.flatten()),
    }
}
