//! The result of a run as one page: a table and plots, without scripts and without anything from elsewhere.
//!
//! Must not know: how it was measured.

use std::fmt::Write as _;

use super::report::{LoadReport, SecondReport, count};

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 220.0;

const STYLE: &str = "\
body { font: 15px system-ui, sans-serif; margin: 2rem auto; max-width: 960px; color: #24292f; background: #fff }\n\
table { border-collapse: collapse } td, th { padding: .3rem .8rem; text-align: right; border-bottom: 1px solid #d0d7de }\n\
td:first-child, th:first-child { text-align: left } svg { width: 100%; height: auto; border: 1px solid #d0d7de; margin-bottom: 1rem }\n\
polyline { fill: none; stroke-width: 2 } .admitted { stroke: #1a7f37; color: #1a7f37 } .limited { stroke: #bc4c00; color: #bc4c00 }\n\
.shed { stroke: #8250df; color: #8250df } .failed { stroke: #cf222e; color: #cf222e } .p50 { stroke: #0969da; color: #0969da }\n\
.p99 { stroke: #57606a; color: #57606a }\n\
@media (prefers-color-scheme: dark) { body { color: #e6edf3; background: #0d1117 } td, th, svg { border-color: #30363d } }\n";

type Value = fn(&SecondReport) -> f64;

const RESPONSES: [(&str, Value); 4] = [
    ("admitted", |row| count(row.admitted)),
    ("limited", |row| count(row.limited)),
    ("shed", |row| count(row.shed)),
    ("failed", |row| count(row.failed + row.other)),
];
const LATENCIES: [(&str, Value); 2] = [
    ("p50", |row| row.p50.unwrap_or_default()),
    ("p99", |row| row.p99.unwrap_or_default()),
];

/// The page.
pub(super) fn render(report: &LoadReport) -> String {
    let url = escape(&report.url);
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>Load on {url}</title>\n<style>\n{STYLE}</style>\n\
         <h1>Load on {url}</h1>\n<p>{} requests in {:.1} s</p>\n",
        report.sent, report.seconds
    );
    table(&mut page, report);
    plot(
        &mut page,
        "Responses per second",
        &RESPONSES,
        &report.per_second,
    );
    plot(
        &mut page,
        "Latency in milliseconds, by the second in which requests ended",
        &LATENCIES,
        &report.per_second,
    );
    page.push_str("</html>\n");
    page
}

fn table(page: &mut String, report: &LoadReport) {
    page.push_str("<table>\n<tr><th></th><th>count</th><th>p50 ms</th><th>p90</th><th>p99</th><th>p99.9</th><th>max</th></tr>\n");
    for class in &report.classes {
        let mut cells = format!("<td>{}</td><td>{}</td>", class.name, class.count);
        if let Some(latency) = &class.latency {
            for value in [
                latency.p50,
                latency.p90,
                latency.p99,
                latency.p999,
                latency.max,
            ] {
                write!(cells, "<td>{value:.2}</td>").ok();
            }
        }
        writeln!(page, "<tr>{cells}</tr>").ok();
    }
    writeln!(
        page,
        "<tr><td>failed</td><td>{}</td></tr>\n</table>",
        report.errors
    )
    .ok();
}

fn plot(page: &mut String, title: &str, series: &[(&str, Value)], rows: &[SecondReport]) {
    let values = |value: Value| rows.iter().map(value);
    let most = series
        .iter()
        .flat_map(|(_, value)| values(*value))
        .fold(0.0, f64::max);
    writeln!(page, "<h2>{title}</h2>\n<p>most {most:.1}").ok();
    let shown = series
        .iter()
        .filter(|(_, value)| values(*value).any(|value| value > 0.0));
    let mut lines = String::new();
    for (name, value) in shown {
        writeln!(page, "<span class=\"{name}\">▬ {name}</span>").ok();
        let step = WIDTH / count(u64::try_from(rows.len()).unwrap_or(1).max(2) - 1);
        // One second is a line as well: a single point would not be drawn.
        let last = rows.last().filter(|_| rows.len() == 1);
        let points: String = values(*value)
            .chain(last.map(*value))
            .enumerate()
            .map(|(place, value)| {
                let x = step * count(u64::try_from(place).unwrap_or_default());
                let y = HEIGHT - value / most.max(f64::MIN_POSITIVE) * (HEIGHT - 10.0);
                format!("{x:.1},{y:.1} ")
            })
            .collect();
        writeln!(
            lines,
            "<polyline class=\"{name}\" points=\"{}\"/>",
            points.trim_end()
        )
        .ok();
    }
    writeln!(
        page,
        "</p>\n<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{title}\">\n{lines}</svg>"
    )
    .ok();
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::load::measurements::{Measurements, Sample};

    #[test]
    fn the_page_has_the_table_and_a_line_for_each_series_and_escapes_the_url() {
        let mut measurements = Measurements::default();
        for (second, status) in [(0, 200), (1, 429), (2, 200)] {
            measurements.next_number();
            let due = Duration::from_secs(second);
            measurements.record(Sample {
                due,
                sent: due,
                done: due,
                outcome: Ok(status),
            });
        }
        measurements.end(Duration::from_secs(3));
        let report = LoadReport::new("http://127.0.0.1/<script>".to_owned(), &measurements);
        let page = render(&report);
        assert!(page.contains("<td>limited</td><td>1</td>"), "{page}");
        assert!(
            page.contains(
                "<polyline class=\"admitted\" points=\"0.0,10.0 450.0,220.0 900.0,10.0\"/>"
            ),
            "{page}"
        );
        assert!(!page.contains("<polyline class=\"shed\""), "{page}");
        assert!(!page.contains("<script>"), "{page}");
    }

    /// A run of less than a second had an empty plot.
    #[test]
    fn a_run_of_one_second_is_a_line() {
        let mut measurements = Measurements::default();
        measurements.next_number();
        measurements.record(Sample {
            due: Duration::ZERO,
            sent: Duration::ZERO,
            done: Duration::from_millis(1),
            outcome: Ok(200),
        });
        measurements.end(Duration::from_millis(500));
        let page = render(&LoadReport::new(
            "http://127.0.0.1/".to_owned(),
            &measurements,
        ));
        let line = "<polyline class=\"admitted\" points=\"0.0,10.0 900.0,10.0\"/>";
        assert!(page.contains(line), "{page}");
    }
}
