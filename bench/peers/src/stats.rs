//! Medians with their spread, and tables of them.
//!
//! Must not know: what the numbers mean.

/// The middle and the ends of a few measurements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

impl Spread {
    /// Of at least one number; of none, everything is NaN and shows as such.
    pub(crate) fn of(numbers: impl Iterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = numbers.collect();
        sorted.sort_unstable_by(f64::total_cmp);
        let at = |index: usize| sorted.get(index).copied().unwrap_or(f64::NAN);
        let (half, last) = (sorted.len() / 2, sorted.len().saturating_sub(1));
        let median = if sorted.len() % 2 == 1 {
            at(half)
        } else {
            f64::midpoint(at(half.saturating_sub(1)), at(half))
        };
        Self {
            median,
            least: at(0),
            most: at(last),
        }
    }

    /// The median, and the ends in brackets.
    pub(crate) fn show(self, digits: usize) -> String {
        let Self {
            median,
            least,
            most,
        } = self;
        format!("{median:.digits$} ({least:.digits$}–{most:.digits$})")
    }
}

/// Rows of cells under a heading, as markdown or as columns for a terminal.
pub(crate) struct Table {
    title: String,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(title: impl Into<String>, head: &[&str]) -> Self {
        let head = head.iter().map(|cell| (*cell).to_owned()).collect();
        Self {
            title: title.into(),
            rows: vec![head],
        }
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    pub(crate) fn render(&self, markdown: bool) -> String {
        let columns = self.rows.first().map_or(0, Vec::len);
        let widths: Vec<usize> = (0..columns)
            .map(|column| {
                self.rows
                    .iter()
                    .filter_map(|row| row.get(column))
                    .map(|cell| cell.chars().count())
                    .max()
                    .unwrap_or(0)
            })
            .collect();
        let mut text = if markdown {
            format!("### {}\n\n", self.title)
        } else {
            format!("{}\n", self.title)
        };
        for (index, row) in self.rows.iter().enumerate() {
            let cells: Vec<String> = row
                .iter()
                .zip(&widths)
                .map(|(cell, width)| {
                    if markdown {
                        cell.clone()
                    } else {
                        format!("{cell:<width$}")
                    }
                })
                .collect();
            if markdown {
                text.push_str(&format!("| {} |\n", cells.join(" | ")));
                if index == 0 {
                    text.push_str(&format!(
                        "|---|{}\n",
                        "---:|".repeat(columns.saturating_sub(1))
                    ));
                }
            } else {
                text.push_str(&format!("  {}\n", cells.join("  ").trim_end()));
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_and_the_ends_are_kept() {
        let spread = Spread::of([3.0, 1.0, 2.0].into_iter());
        assert_eq!(
            spread,
            Spread {
                median: 2.0,
                least: 1.0,
                most: 3.0
            }
        );
        assert_eq!(spread.show(1), "2.0 (1.0–3.0)");
        assert!((Spread::of([1.0, 2.0].into_iter()).median - 1.5).abs() < 1e-9);
        assert!(Spread::of(std::iter::empty()).median.is_nan());
    }

    #[test]
    fn a_table_is_markdown_or_columns() {
        let mut table = Table::new("T", &["a", "b"]);
        table.row(vec!["long".to_owned(), "1".to_owned()]);
        assert_eq!(
            table.render(true),
            "### T\n\n| a | b |\n|---|---:|\n| long | 1 |\n"
        );
        assert_eq!(table.render(false), "T\n  a     b\n  long  1\n");
    }
}
