//! Line plots with logarithmic or linear axes as one SVG file of several panels.
//!
//! Readable on light and on dark pages; no scripts, no fonts of its own. Must not know: what was measured.

use std::fmt::Write as _;

use super::measurements::Measurements;

/// One panel: lines over the same axes.
#[derive(Debug, Default)]
pub(super) struct Panel {
    pub(super) title: String,
    /// What the horizontal axis counts.
    pub(super) axis: String,
    /// What the vertical axis counts.
    pub(super) unit: String,
    /// Whether both axes are linear and begin at zero. Otherwise both are logarithmic.
    pub(super) is_linear: bool,
    pub(super) lines: Vec<Line>,
}

#[derive(Debug)]
pub(super) struct Line {
    pub(super) name: String,
    /// The place on the horizontal axis, then median, least and most.
    pub(super) points: Vec<[f64; 4]>,
}

const COLUMNS: usize = 3;
const WIDTH: f64 = 370.0;
const HEIGHT: f64 = 260.0;
/// Room around the lines of a panel: left, top, right, bottom.
const MARGIN: [f64; 4] = [52.0, 62.0, 18.0, 40.0];
/// Labels of the horizontal axis are at least so far apart.
const LABEL_GAP: f64 = 30.0;

const STYLE: &str = "\
    text { font: 12px system-ui, sans-serif; fill: #24292f }\n\
    .title { font-weight: 600; font-size: 13px }\n\
    .page { fill: #ffffff }\n\
    .grid { stroke: #d0d7de; stroke-width: 1 }\n\
    .line { fill: none; stroke-width: 2 }\n\
    .c0 { stroke: #0969da; } .c1 { stroke: #bc4c00; } .c2 { stroke: #1a7f37; }\n\
    circle.c0 { fill: #0969da } circle.c1 { fill: #bc4c00 } circle.c2 { fill: #1a7f37 }\n\
    @media (prefers-color-scheme: dark) {\n\
    text { fill: #e6edf3 } .page { fill: #0d1117 } .grid { stroke: #30363d }\n\
    .c0 { stroke: #58a6ff } .c1 { stroke: #f0883e } .c2 { stroke: #3fb950 }\n\
    circle.c0 { fill: #58a6ff } circle.c1 { fill: #f0883e } circle.c2 { fill: #3fb950 }\n\
    }\n";

/// Draws all panels that have points.
pub(super) fn render(title: &str, panels: &[Panel]) -> String {
    let panels: Vec<&Panel> = panels
        .iter()
        .filter(|panel| panel.points().next().is_some())
        .collect();
    let rows = panels.len().div_ceil(COLUMNS);
    let (width, height) = (WIDTH * float(COLUMNS), HEIGHT * float(rows));
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" role=\"img\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n\
         <rect class=\"page\" width=\"{width}\" height=\"{height}\"/>\n"
    );
    for (index, panel) in panels.iter().enumerate() {
        let (left, top) = (
            WIDTH * float(index % COLUMNS),
            HEIGHT * float(index / COLUMNS),
        );
        let drawn = panel.draw();
        // Writing into a string does not fail.
        let _written = writeln!(
            svg,
            "<g transform=\"translate({left} {top})\">\n{drawn}</g>"
        );
    }
    svg + "</svg>\n"
}

impl Panel {
    /// The measurements of a workload: a line for each name, in the order in which they were measured.
    pub(super) fn from_measurements(
        measurements: &Measurements,
        workload: &str,
        title: &str,
        axis: &str,
    ) -> Self {
        let mut panel = Self {
            title: title.to_owned(),
            axis: axis.to_owned(),
            ..Self::default()
        };
        let of_workload = measurements.0.iter();
        for one in of_workload.filter(|one| one.workload == workload) {
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
    }

    fn points(&self) -> impl Iterator<Item = &[f64; 4]> {
        self.lines.iter().flat_map(|line| &line.points)
    }

    fn draw(&self) -> String {
        let [left, top, right, bottom] = MARGIN;
        let places = self.points().map(|point| point[0]);
        let values = self.points().flat_map(|point| [point[2], point[3]]);
        let (across, up) = if self.is_linear {
            (
                Scale::linear(places, left, WIDTH - right),
                Scale::linear(values, HEIGHT - bottom, top),
            )
        } else {
            (
                Scale::new(places, 1.0, left, WIDTH - right),
                Scale::new(values, 1.6, HEIGHT - bottom, top),
            )
        };
        let mut svg = format!(
            "<text class=\"title\" x=\"{left}\" y=\"20\">{}</text>\n",
            escaped(&format!("{}, {}", self.title, self.unit))
        );
        for tick in up.ticks() {
            let y = up.place(tick);
            svg += &format!(
                "<line class=\"grid\" x1=\"{left}\" y1=\"{y:.1}\" x2=\"{:.1}\" y2=\"{y:.1}\"/>\n\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\n",
                WIDTH - right,
                left - 6.0,
                y + 4.0,
                number(tick)
            );
        }
        svg += &self.horizontal_labels(&across);
        svg += &format!(
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\n",
            (left + WIDTH - right) / 2.0,
            HEIGHT - 6.0,
            escaped(&self.axis)
        );
        let mut legend = left;
        for (index, line) in self.lines.iter().enumerate() {
            let color = index % 3;
            svg += &line.draw(&across, &up, color);
            svg += &format!(
                "<circle class=\"c{color}\" cx=\"{:.1}\" cy=\"38\" r=\"4\"/><text x=\"{:.1}\" y=\"42\">{}</text>\n",
                legend + 4.0,
                legend + 13.0,
                escaped(&line.name)
            );
            legend += 26.0 + 6.4 * float(line.name.chars().count());
        }
        svg
    }

    /// The sizes that were measured, where there is room.
    fn horizontal_labels(&self, across: &Scale) -> String {
        let mut sizes: Vec<f64> = self.points().map(|point| point[0]).collect();
        sizes.sort_unstable_by(f64::total_cmp);
        sizes.dedup();
        let (mut svg, mut last) = (String::new(), f64::MIN);
        for size in sizes {
            let x = across.place(size);
            if x - last < LABEL_GAP {
                continue;
            }
            last = x;
            let y = HEIGHT - MARGIN[3] + 16.0;
            svg += &format!(
                "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{}</text>\n",
                number(size)
            );
        }
        svg
    }
}

impl Line {
    fn draw(&self, across: &Scale, up: &Scale, color: usize) -> String {
        let mut path = String::new();
        let mut marks = String::new();
        for [size, median, least, most] in &self.points {
            let (x, y) = (across.place(*size), up.place(*median));
            path += &format!("{x:.1},{y:.1} ");
            marks += &format!(
                "<line class=\"c{color}\" x1=\"{x:.1}\" y1=\"{:.1}\" x2=\"{x:.1}\" y2=\"{:.1}\"/>\
                 <circle class=\"c{color}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.5\"/>\n",
                up.place(*least),
                up.place(*most)
            );
        }
        format!(
            "<polyline class=\"line c{color}\" points=\"{}\"/>\n{marks}",
            path.trim_end()
        )
    }
}

/// An axis from one place to another.
struct Scale {
    is_linear: bool,
    least: f64,
    most: f64,
    from: f64,
    to: f64,
}

impl Scale {
    /// An axis for these values, which are above zero, with so much room at both ends.
    fn new(values: impl Iterator<Item = f64>, room: f64, from: f64, to: f64) -> Self {
        let (mut least, mut most) = (f64::MAX, f64::MIN_POSITIVE);
        for value in values.map(|value| value.max(1e-6)) {
            (least, most) = (least.min(value), most.max(value));
        }
        let (least, most) = (least.min(most) / room, most * room);
        // One value is in the middle.
        let most = if most > least { most } else { least * 2.0 };
        Self {
            is_linear: false,
            least,
            most,
            from,
            to,
        }
    }

    /// A linear axis from zero to the largest of these values.
    fn linear(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        Self {
            is_linear: true,
            least: 0.0,
            most: values.fold(1e-6, f64::max),
            from,
            to,
        }
    }

    fn place(&self, value: f64) -> f64 {
        let part = match self.is_linear {
            true => value / self.most,
            false => (value.max(1e-6) / self.least).ln() / (self.most / self.least).ln(),
        };
        self.from + part * (self.to - self.from)
    }

    /// One, two and five of each power of ten in the range; of a long range only the powers.
    fn ticks(&self) -> Vec<f64> {
        if self.is_linear {
            // Between three and six round steps.
            let power = 10_f64.powf((self.most / 3.0).log10().floor());
            let steps = [5.0, 2.0, 1.0].map(|step| step * power);
            let step = steps.into_iter().find(|step| self.most / step >= 3.0);
            let step = step.unwrap_or(power);
            let all = (0..=6_u32).map(|index| f64::from(index) * step);
            return all.filter(|tick| *tick <= self.most).collect();
        }
        let powers = (self.most / self.least).log10();
        let steps: &[f64] = if powers > 2.5 {
            &[1.0]
        } else {
            &[1.0, 2.0, 5.0]
        };
        let all =
            (-6..=12).flat_map(|power| steps.iter().map(move |step| step * 10_f64.powi(power)));
        all.filter(|tick| (self.least..=self.most).contains(tick))
            .collect()
    }
}

/// A number as people read it: powers of ten from ten thousand on.
fn number(value: f64) -> String {
    let power = value.log10();
    if value >= 10_000.0 && (power - power.round()).abs() < 1e-9 {
        let digits = format!("{power:.0}");
        let raised = digits.chars().map(|digit| match digit {
            '0' => '⁰',
            '1' => '¹',
            '4' => '⁴',
            '5' => '⁵',
            '6' => '⁶',
            '7' => '⁷',
            '8' => '⁸',
            _ => '⁹',
        });
        return format!("10{}", raised.collect::<String>());
    }
    match value {
        10_000.0.. => format!("{:.0}k", value / 1e3),
        10.0.. => format!("{value:.0}"),
        _ => format!("{}", (value * 100.0).round() / 100.0),
    }
}

fn float(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn panel(points: Vec<[f64; 4]>) -> Panel {
        Panel {
            title: "keys <&>".to_owned(),
            axis: "keys".to_owned(),
            unit: "ns".to_owned(),
            is_linear: false,
            lines: vec![Line {
                name: "library".to_owned(),
                points,
            }],
        }
    }

    #[test]
    fn a_higher_value_is_higher_and_ends_are_inside() {
        let scale = Scale::new([1.0, 100.0].into_iter(), 1.0, 200.0, 50.0);
        assert!((scale.place(1.0) - 200.0).abs() < 1e-9);
        assert!((scale.place(10.0) - 125.0).abs() < 1e-9);
        assert!((scale.place(100.0) - 50.0).abs() < 1e-9);
        assert_eq!(scale.ticks(), [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]);
    }

    #[test]
    fn a_linear_axis_begins_at_zero_and_has_round_ticks() {
        let scale = Scale::linear([3.0, 80.0].into_iter(), 0.0, 160.0);
        assert!((scale.place(20.0) - 40.0).abs() < 1e-9);
        assert_eq!(scale.ticks(), [0.0, 20.0, 40.0, 60.0, 80.0]);
        let flat = Scale::linear(std::iter::once(0.0), 0.0, 100.0);
        assert!(
            flat.ticks()
                .iter()
                .all(|tick| flat.place(*tick).is_finite())
        );
    }

    #[test]
    fn a_panel_has_its_points_and_its_text_is_escaped() {
        let svg = render(
            "title",
            &[panel(vec![
                [1e3, 20.0, 18.0, 25.0],
                [1e8, 150.0, 140.0, 160.0],
            ])],
        );
        assert_eq!(svg.matches("r=\"2.5\"").count(), 2);
        assert!(
            svg.contains("keys &lt;&amp;&gt;") && svg.contains("10⁸"),
            "{svg}"
        );
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }

    #[test]
    fn a_panel_without_points_is_left_out_and_one_point_or_zero_is_drawn() {
        assert_eq!(
            render("title", &[panel(Vec::new())]).matches("<g ").count(),
            0
        );
        for value in [0.0, 5.0] {
            let svg = render("title", &[panel(vec![[1.0, value, value, value]])]);
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
    }
}
