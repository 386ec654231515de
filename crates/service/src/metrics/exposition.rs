//! Writes metrics in the text format of Prometheus, or in OpenMetrics.
//!
//! Must not know: which metrics exist, where numbers come from.

use std::fmt::Write as _;

use super::families::{MetricFamily, MetricKind};
use super::histogram::HistogramSnapshot;

/// The format of the metrics page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricsFormat {
    /// The text format 0.0.4.
    Prometheus,
    /// OpenMetrics 1.0.0.
    OpenMetrics,
}

impl MetricsFormat {
    /// The `Content-Type` of the format.
    #[must_use]
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// The format that a client prefers by its `Accept` headers. The default is the text format.
    pub fn negotiate<'a>(accept: impl Iterator<Item = &'a str>) -> Self {
        let (mut open, mut plain) = (0, 0);
        for range in accept.flat_map(|field| field.split(',')) {
            let mut parts = range.split(';').map(str::trim);
            let kind = parts.next().unwrap_or_default();
            let weight = parts
                .filter_map(|part| part.split_once('='))
                .find(|(name, _)| name.trim().eq_ignore_ascii_case("q"))
                .map_or(1_000, |(_, weight)| parse_weight(weight.trim()));
            if kind.eq_ignore_ascii_case("application/openmetrics-text") {
                open = weight.max(open);
            } else if kind.eq_ignore_ascii_case("text/plain") {
                plain = weight.max(plain);
            }
        }
        if open > 0 && open >= plain {
            Self::OpenMetrics
        } else {
            Self::Prometheus
        }
    }
}

/// Parses a quality value of `Accept` into thousandths. An invalid value is zero.
fn parse_weight(weight: &str) -> u32 {
    let (whole, rest) = weight.split_once('.').unwrap_or((weight, ""));
    let digits = rest.bytes().chain(*b"000").take(3);
    let is_number = rest.len() <= 3 && rest.bytes().all(|digit| digit.is_ascii_digit());
    let part = digits.fold(0, |sum, digit| {
        sum * 10 + u32::from(digit.saturating_sub(b'0'))
    });
    match whole {
        "1" if is_number => 1_000,
        "0" if is_number => part,
        _ => 0,
    }
}

/// A metrics page that is being written.
#[derive(Debug)]
pub(crate) struct MetricsPage {
    out: String,
    format: MetricsFormat,
}

/// The samples of one family.
pub(crate) struct FamilySamples<'a> {
    page: &'a mut MetricsPage,
    family: &'a MetricFamily,
}

impl MetricsPage {
    pub(crate) fn new(format: MetricsFormat) -> Self {
        Self {
            // Enough for a policy with a few limits.
            out: String::with_capacity(16 * 1_024),
            format,
        }
    }

    /// Writes a family's header. Its samples follow.
    pub(crate) fn family<'a>(&'a mut self, family: &'a MetricFamily) -> FamilySamples<'a> {
        let MetricFamily {
            name, kind, help, ..
        } = family;
        let unit = name.ends_with("_seconds");
        // Writing to a `String` cannot fail.
        let _infallible = match self.format {
            // In this format a family has the name of its samples, and the type `info` does not exist.
            MetricsFormat::Prometheus => {
                let suffix = kind.suffix();
                let type_name = match kind {
                    MetricKind::Info => "gauge",
                    other => other.type_name(),
                };
                write!(
                    self.out,
                    "# HELP {name}{suffix} {help}\n# TYPE {name}{suffix} {type_name}\n"
                )
            }
            MetricsFormat::OpenMetrics => {
                let type_name = kind.type_name();
                let unit = if unit {
                    format!("# UNIT {name} seconds\n")
                } else {
                    String::new()
                };
                write!(
                    self.out,
                    "# TYPE {name} {type_name}\n{unit}# HELP {name} {help}\n"
                )
            }
        };
        FamilySamples { page: self, family }
    }

    /// The whole page.
    pub(crate) fn finish(mut self) -> String {
        if self.format == MetricsFormat::OpenMetrics {
            self.out.push_str("# EOF\n");
        }
        self.out
    }
}

impl FamilySamples<'_> {
    /// Writes one number. `labels` are the values of the family's labels, in its order.
    pub(crate) fn add(&mut self, labels: &[&str], value: u64) -> &mut Self {
        self.write_sample_name(self.family.kind.suffix(), labels, None);
        let _infallible = writeln!(self.page.out, "{value}");
        self
    }

    /// Writes nanoseconds as seconds.
    pub(crate) fn add_nanos(&mut self, labels: &[&str], nanos: u64) -> &mut Self {
        self.write_sample_name(self.family.kind.suffix(), labels, None);
        self.write_seconds(nanos);
        self
    }

    /// Writes a histogram.
    pub(crate) fn add_histogram(
        &mut self,
        labels: &[&str],
        spans: &HistogramSnapshot,
    ) -> &mut Self {
        let HistogramSnapshot {
            cumulative: up_to,
            count,
            sum,
        } = spans;
        for (end, count_up_to) in up_to.iter().chain([&("+Inf", *count)]) {
            self.write_sample_name("_bucket", labels, Some(end));
            let _infallible = writeln!(self.page.out, "{count_up_to}");
        }
        self.write_sample_name("_sum", labels, None);
        self.write_seconds(*sum);
        self.write_sample_name("_count", labels, None);
        let _infallible = writeln!(self.page.out, "{count}");
        self
    }

    fn write_sample_name(&mut self, suffix: &str, labels: &[&str], end: Option<&str>) {
        debug_assert_eq!(labels.len(), self.family.labels.len());
        let out = &mut self.page.out;
        out.push_str(self.family.name);
        out.push_str(suffix);
        let named = self
            .family
            .labels
            .iter()
            .copied()
            .zip(labels.iter().copied());
        let mut opening = '{';
        for (name, value) in named.chain(end.map(|end| ("le", end))) {
            out.push(opening);
            opening = ',';
            out.push_str(name);
            out.push_str("=\"");
            escape(value, out);
            out.push('"');
        }
        if opening == ',' {
            out.push('}');
        }
        out.push(' ');
    }

    fn write_seconds(&mut self, nanos: u64) {
        let (seconds, rest) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
        let digits = format!("{rest:09}");
        let digits = digits.trim_end_matches('0');
        let digits = if digits.is_empty() { "0" } else { digits };
        let _infallible = writeln!(self.page.out, "{seconds}.{digits}");
    }
}

fn escape(value: &str, out: &mut String) {
    for c in value.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            c => out.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPANS: MetricFamily = MetricFamily {
        name: "took_seconds",
        kind: MetricKind::Histogram,
        labels: &["by"],
        help: "Duration",
    };
    const SEEN: MetricFamily = MetricFamily {
        name: "seen",
        kind: MetricKind::Counter,
        labels: &[],
        help: "Events",
    };

    fn page(format: MetricsFormat) -> String {
        let mut page = MetricsPage::new(format);
        page.family(&SEEN).add(&[], 7);
        let spans = HistogramSnapshot {
            cumulative: vec![("0.1", 1)],
            count: 2,
            sum: 1_250_000_000,
        };
        page.family(&SPANS).add_histogram(&["a\"b\\c\nd"], &spans);
        page.finish()
    }

    #[test]
    fn both_formats_are_written_exactly() {
        let samples = |total: &str| {
            format!(
                r#"took_seconds_bucket{{by="a\"b\\c\nd",le="0.1"}} 1
took_seconds_bucket{{by="a\"b\\c\nd",le="+Inf"}} 2
took_seconds_sum{{by="a\"b\\c\nd"}} 1.25
took_seconds_count{{by="a\"b\\c\nd"}} 2
{total}"#
            )
        };
        let plain = "# HELP seen_total Events\n# TYPE seen_total counter\nseen_total 7\n\
                     # HELP took_seconds Duration\n# TYPE took_seconds histogram\n";
        assert_eq!(
            page(MetricsFormat::Prometheus),
            format!("{plain}{}", samples(""))
        );
        let open = "# TYPE seen counter\n# HELP seen Events\nseen_total 7\n\
                    # TYPE took_seconds histogram\n# UNIT took_seconds seconds\n# HELP took_seconds Duration\n";
        assert_eq!(
            page(MetricsFormat::OpenMetrics),
            format!("{open}{}", samples("# EOF\n"))
        );
    }

    #[test]
    fn clients_get_the_format_that_they_prefer() {
        use MetricsFormat::{OpenMetrics, Prometheus};
        // What Prometheus 3 sends.
        let server = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
            application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,\
            text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        for (accept, format) in [
            (&[server][..], OpenMetrics),
            (&[], Prometheus),
            (&["*/*"], Prometheus),
            (&["text/html, */*;q=0.8"], Prometheus),
            (&["application/openmetrics-text"], OpenMetrics),
            (&["text/plain", "Application/OpenMetrics-Text"], OpenMetrics),
            (&["application/openmetrics-text; q=0"], Prometheus),
            (
                &["application/openmetrics-text; q=0.499, text/plain; q=0.5"],
                Prometheus,
            ),
            (&["application/openmetrics-text; q=what"], Prometheus),
        ] {
            assert_eq!(
                MetricsFormat::negotiate(accept.iter().copied()),
                format,
                "{accept:?}"
            );
        }
    }

    #[test]
    fn quality_values_are_parsed_as_http_defines_them() {
        for (text, weight) in [
            ("1", 1_000),
            ("1.000", 1_000),
            ("0", 0),
            ("0.5", 500),
            ("0.05", 50),
            ("0.999", 999),
            ("2", 0),
            ("", 0),
            ("-1", 0),
            ("0.1234", 0),
        ] {
            assert_eq!(parse_weight(text), weight, "{text}");
        }
    }
}
