//! `cargo xtask bench growth`: how the cost of a decision grows, as tables and as one picture with a panel for each dimension.
//!
//! The picture has every study of growth that ran, in this run or in an earlier one. With `--write` it goes to `docs/img`. Must not
//! know: how anything is measured.

use super::measurements::Measurements;
use super::plot::{self, Line, Panel};
use super::studies::{self, STUDIES, StudyOptions};
use crate::workspace::Workspace;

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

/// Runs the studies of growth, prints their tables and draws the picture.
pub(super) fn run(workspace: &Workspace, args: &[String]) -> Result<(), String> {
    let known: Vec<_> = STUDIES.iter().filter(|study| study.is_growth).collect();
    let options = StudyOptions::parse("growth", args, &known)?;
    let results = studies::run(workspace, &options, &known)?;
    for study in &results.studies {
        println!("{}\n", study.tables.trim());
    }
    save_picture(workspace, options.is_written, &results.measurements)
}

/// Draws the picture, for the page or for the target folder.
pub(super) fn save_picture(
    workspace: &Workspace,
    is_written: bool,
    measurements: &Measurements,
) -> Result<(), String> {
    let path = match is_written {
        true => workspace.root.join("docs/img/growth.svg"),
        false => workspace.target.join("bench/growth.svg"),
    };
    studies::save(
        &path,
        &plot::render("Growth of the cost of a decision", &panels(measurements)),
    )
}

/// Lines of each panel in the order in which they were measured.
fn panels(measurements: &Measurements) -> Vec<Panel> {
    let panel = |(workload, title, axis): &(&str, &str, &str)| {
        let mut panel = Panel {
            title: (*title).to_owned(),
            axis: (*axis).to_owned(),
            ..Panel::default()
        };
        for one in measurements
            .0
            .iter()
            .filter(|one| one.workload == *workload)
        {
            let Ok(size) = one.metric.parse::<f64>() else {
                continue;
            };
            panel.unit.clone_from(&one.unit);
            let point = [size, one.median, one.least, one.most];
            match panel.lines.iter_mut().find(|line| line.name == one.name) {
                Some(line) => line.points.push(point),
                None => panel.lines.push(Line {
                    name: one.name.clone(),
                    points: vec![point],
                }),
            }
        }
        panel
    };
    PANELS.iter().map(panel).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
