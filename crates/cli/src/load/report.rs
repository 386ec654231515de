//! The result of a run, for people and for programs.
//!
//! Must not know: how it was measured.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use serde::Serialize;

use super::measurements::{Latencies, Measurements, ResponseClass, SecondRow};
use super::plot::sparkline;
use super::seconds;

/// The result of a run. Latencies are milliseconds.
#[derive(Debug, Serialize)]
pub(super) struct LoadReport {
    pub(super) url: String,
    pub(super) seconds: f64,
    pub(super) sent: u64,
    /// Whether Ctrl-C ended the run.
    pub(super) interrupted: bool,
    /// Requests that were given up when the run was interrupted: they were under way, or due.
    pub(super) unsent: u64,
    pub(super) classes: Vec<ClassReport>,
    pub(super) statuses: BTreeMap<u16, u64>,
    pub(super) errors: u64,
    pub(super) errors_by_kind: BTreeMap<&'static str, u64>,
    /// What the generator itself added to latencies.
    pub(super) send_delay: Option<Quantiles>,
    pub(super) per_second: Vec<SecondReport>,
}

/// One kind of responses.
#[derive(Debug, Serialize)]
pub(super) struct ClassReport {
    pub(super) name: &'static str,
    pub(super) count: u64,
    /// From when requests were due, sent or not.
    pub(super) latency: Option<Quantiles>,
}

#[derive(Debug, Serialize)]
pub(super) struct Quantiles {
    pub(super) p50: f64,
    pub(super) p90: f64,
    pub(super) p99: f64,
    pub(super) p999: f64,
    pub(super) max: f64,
}

/// One second of the run.
#[derive(Debug, Serialize)]
pub(super) struct SecondReport {
    pub(super) admitted: u64,
    pub(super) limited: u64,
    pub(super) shed: u64,
    pub(super) other: u64,
    pub(super) failed: u64,
    pub(super) p50: Option<f64>,
    pub(super) p99: Option<f64>,
}

impl Quantiles {
    fn of(latencies: &Latencies) -> Option<Self> {
        let at = |share| latencies.quantile(share).map(millis);
        Some(Self {
            p50: at(0.5)?,
            p90: at(0.9)?,
            p99: at(0.99)?,
            p999: at(0.999)?,
            max: at(1.0)?,
        })
    }
}

impl From<&SecondRow> for SecondReport {
    fn from(row: &SecondRow) -> Self {
        let count = |class| row.by_class.get(&class).copied().unwrap_or_default();
        Self {
            admitted: count(ResponseClass::Admitted),
            limited: count(ResponseClass::Limited),
            shed: count(ResponseClass::Shed),
            other: count(ResponseClass::Other),
            failed: row.failed,
            p50: row.p50.map(millis),
            p99: row.p99.map(millis),
        }
    }
}

impl LoadReport {
    pub(super) fn new(url: String, measurements: &Measurements) -> Self {
        let class = |class: ResponseClass| ClassReport {
            name: class.name(),
            count: measurements.count(class),
            latency: measurements.latencies.get(&class).and_then(Quantiles::of),
        };
        Self {
            url,
            seconds: seconds(measurements.length),
            sent: measurements.sent(),
            interrupted: measurements.is_interrupted,
            unsent: measurements.unsent,
            classes: ResponseClass::ALL.map(class).into(),
            statuses: measurements.statuses.clone(),
            errors: measurements.failed(),
            errors_by_kind: measurements.failures.clone(),
            send_delay: Quantiles::of(&measurements.send_delays),
            per_second: measurements.rows.iter().map(SecondReport::from).collect(),
        }
    }

    /// A table and plots for a terminal.
    pub(super) fn text(&self) -> String {
        let mut text = format!(
            "{}  {} sent in {:.1} s\n\n",
            self.url, self.sent, self.seconds
        );
        let header = ["", "count", "share", "p50 ms", "p90", "p99", "p99.9", "max"];
        row(&mut text, &header.map(str::to_owned));
        for class in self.classes.iter().filter(|class| class.count > 0) {
            let mut cells = vec![
                class.name.to_owned(),
                class.count.to_string(),
                self.share(class.count),
            ];
            if let Some(latency) = &class.latency {
                let values = [
                    latency.p50,
                    latency.p90,
                    latency.p99,
                    latency.p999,
                    latency.max,
                ];
                cells.extend(values.map(|value| format!("{value:.2}")));
            }
            row(&mut text, &cells);
        }
        if self.errors > 0 {
            row(
                &mut text,
                &[
                    "failed".to_owned(),
                    self.errors.to_string(),
                    self.share(self.errors),
                ],
            );
        }
        self.write_details(&mut text);
        self.write_plots(&mut text);
        text
    }

    fn write_details(&self, text: &mut String) {
        let statuses = self
            .statuses
            .iter()
            .map(|(status, count)| format!("{status} × {count}"));
        let failures = self
            .errors_by_kind
            .iter()
            .map(|(kind, count)| format!("{kind} × {count}"));
        let all: Vec<String> = statuses.chain(failures).collect();
        write_line(text, &format!("\n{}", all.join(", ")));
        if let Some(delay) = &self.send_delay {
            let note = format!(
                "requests were sent {:.2} ms late at p50, {:.2} ms at p99",
                delay.p50, delay.p99
            );
            write_line(text, &note);
        }
        if self.interrupted {
            write_line(
                text,
                &format!("interrupted: {} requests were given up", self.unsent),
            );
        }
    }

    fn write_plots(&self, text: &mut String) {
        if self.per_second.len() < 2 {
            return;
        }
        text.push('\n');
        type Value = fn(&SecondReport) -> f64;
        let plots: [(&str, Value); 6] = [
            ("admitted/s", |row| count(row.admitted)),
            ("limited/s", |row| count(row.limited)),
            ("shed/s", |row| count(row.shed)),
            ("other/s", |row| count(row.other)),
            ("failed/s", |row| count(row.failed)),
            ("p99 ms", |row| row.p99.unwrap_or_default()),
        ];
        for (name, value) in plots {
            let values: Vec<f64> = self.per_second.iter().map(value).collect();
            let line = sparkline(&values);
            if !line.is_empty() {
                let most = values.iter().copied().fold(0.0, f64::max);
                write_line(text, &format!("{name:>10} {line} most {most:.1}"));
            }
        }
    }

    fn share(&self, part: u64) -> String {
        match self.sent {
            0 => String::new(),
            sent => format!("{:.1} %", 100.0 * count(part) / count(sent)),
        }
    }
}

fn row(text: &mut String, cells: &[String]) {
    let line: String = cells.iter().map(|cell| format!("{cell:>10}")).collect();
    write_line(text, line.trim_end());
}

fn write_line(text: &mut String, line: &str) {
    // Writing to a string cannot fail.
    writeln!(text, "{line}").ok();
}

/// Milliseconds with three digits: 17.551, not 17.551000000000002.
fn millis(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}

#[expect(clippy::cast_precision_loss, reason = "for plots and shares")]
pub(super) fn count(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::measurements::Sample;

    fn report() -> LoadReport {
        let mut measurements = Measurements::default();
        for number in 0..40_u64 {
            measurements.next_number();
            let due = Duration::from_millis(number * 50);
            measurements.record(Sample {
                due,
                sent: due,
                done: due + Duration::from_millis(2),
                outcome: Ok(if number < 30 { 200 } else { 429 }),
            });
        }
        measurements.end(Duration::from_secs(2));
        LoadReport::new("http://127.0.0.1/".to_owned(), &measurements)
    }

    #[test]
    fn the_text_has_a_row_for_each_class_and_a_plot_for_each_series() {
        let text = report().text();
        assert!(text.contains("40 sent in 2.0 s"), "{text}");
        assert!(
            text.contains("admitted        30    75.0 %      2.00"),
            "{text}"
        );
        assert!(text.contains("limited        10    25.0 %"), "{text}");
        assert!(text.contains("200 × 30, 429 × 10"), "{text}");
        assert!(text.contains("admitted/s █▄ most 20.0"), "{text}");
        assert!(!text.contains("shed"), "{text}");
    }

    #[test]
    fn the_json_has_the_same_numbers() {
        let json = serde_json::to_value(report()).unwrap();
        assert_eq!(json["classes"][1]["name"], "limited");
        assert_eq!(json["classes"][1]["count"], 10);
        assert_eq!(json["statuses"]["200"], 30);
        assert_eq!(json["per_second"][0]["admitted"], 20);
        assert!(json["classes"][2]["latency"].is_null());
    }
}
