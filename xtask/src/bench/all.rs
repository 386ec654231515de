//! `cargo xtask bench all`: every study, one after the other, and the pages of benchmarks that are made of them.
//!
//! Prints markdown, or with `--write` replaces the generated parts of `docs/benchmarks.md`, `docs/benchmarks-appendix.md` and
//! `docs/img/growth.svg`. Must not know: how anything is measured.

use super::studies::{self, Results, STUDIES, StudyOptions};
use super::{growth, headline, machine, page};
use crate::workspace::Workspace;

/// Runs the studies and makes the pages.
pub(super) fn run(workspace: &Workspace, args: &[String]) -> Result<(), String> {
    let known: Vec<_> = STUDIES.iter().collect();
    let options = StudyOptions::parse("all", args, &known)?;
    let results = studies::run(workspace, &options, &known)?;
    let run = machine::description(workspace, options.is_quick, &results)?;
    let table = headline::table(&results.measurements);
    let top = format!("{run}\n{table}\n![Growth of the cost of a decision](img/growth.svg)\n");
    let losses = headline::losses(&results.measurements);
    let tables = appendix(&results);
    growth::save_picture(workspace, options.is_written, &results.measurements)?;
    if !options.is_written {
        println!("{top}\nWhere a peer is ahead:\n\n{losses}\n{tables}");
        return Ok(());
    }
    let docs = workspace.root.join("docs");
    page::replace(&docs.join("benchmarks.md"), "headline", &top)?;
    page::replace(&docs.join("benchmarks.md"), "losses", &losses)?;
    let long = docs.join("benchmarks-appendix.md");
    page::replace(&long, "tables", &format!("{run}\n{tables}"))
}

/// All tables, under the headings of their studies.
fn appendix(results: &Results) -> String {
    let (mut text, mut heading) = (String::new(), "");
    for study in &results.studies {
        if study.title != heading {
            text += &format!("## {}\n\n", study.title);
            heading = study.title;
        }
        text += &format!("{}\n\n", study.tables.trim());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::run_record::RunRecord;
    use crate::bench::studies::StudyResults;

    #[test]
    fn studies_with_one_heading_stand_under_it() {
        let study = |title, tables: &str| StudyResults {
            title,
            tables: tables.to_owned(),
            record: RunRecord::parse("2026-11-18 0b875c06 1").unwrap(),
        };
        let results = Results {
            studies: vec![study("A", "one\n"), study("A", "two"), study("B", "three")],
            ..Results::default()
        };
        assert_eq!(
            appendix(&results),
            "## A\n\none\n\ntwo\n\n## B\n\nthree\n\n"
        );
    }
}
