//! Tables of text, plain or as Markdown, and the numbers in them.
//!
//! Must not know: what is in the tables.

/// Rows of cells under a heading.
#[derive(Debug)]
pub(crate) struct Table {
    title: String,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new<const N: usize>(title: impl Into<String>, heads: [&str; N]) -> Self {
        Self {
            title: title.into(),
            rows: vec![heads.map(str::to_owned).to_vec()],
        }
    }

    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(Vec::from(cells));
    }

    pub(crate) fn render(&self, markdown: bool) -> String {
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let (edge, between, heading) = if markdown {
            ("|", " | ", "### ")
        } else {
            ("", "  ", "")
        };
        let mut text = format!("{heading}{}\n\n", self.title);
        for (index, row) in self.rows.iter().enumerate() {
            let cells: Vec<String> = row
                .iter()
                .enumerate()
                .map(|(column, cell)| pad(cell, width(column), column == 0))
                .collect();
            let pad = if markdown { " " } else { "" };
            let line = format!("{edge}{pad}{}{pad}{edge}", cells.join(between));
            text.push_str(line.trim_end());
            text.push('\n');
            if index == 0 && markdown {
                let rule = (0..row.len()).map(|column| if column == 0 { "---" } else { "---:" });
                text.push_str(&format!("|{}|\n", rule.collect::<Vec<_>>().join("|")));
            }
        }
        text
    }
}

/// A whole number with commas.
pub(crate) fn count(n: u64) -> String {
    let digits = n.to_string();
    let first = digits.len() % 3;
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && index % 3 == first {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A share in percent, with as many digits as it takes to see it.
pub(crate) fn percent(part: f64, whole: f64) -> String {
    if whole <= 0.0 {
        return "–".to_owned();
    }
    let percent = part / whole * 100.0;
    match percent.abs() {
        0.0 => "0 %".to_owned(),
        size if size < 0.1 => format!("{percent:.4} %"),
        size if size < 10.0 => format!("{percent:.2} %"),
        size if size < 1_000.0 => format!("{percent:.1} %"),
        _ => format!("{percent:.0} %"),
    }
}

/// First columns are names and stand left, the others are numbers and stand right.
fn pad(cell: &str, width: usize, left: bool) -> String {
    if left {
        format!("{cell:<width$}")
    } else {
        format!("{cell:>width$}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_commas_and_shares_have_digits() {
        let found = [0, 7, 999, 1_000, 12_345, 1_234_567].map(count);
        assert_eq!(found, ["0", "7", "999", "1,000", "12,345", "1,234,567"]);
        let found = [0.0, 0.003, 0.5, 6.0, 15.25, 199.0, 5_000.0].map(|n| percent(n, 100.0));
        assert_eq!(
            found,
            [
                "0 %", "0.0030 %", "0.50 %", "6.00 %", "15.2 %", "199.0 %", "5000 %"
            ]
        );
        assert_eq!(percent(1.0, 0.0), "–");
    }

    #[test]
    fn a_table_is_plain_or_markdown() {
        let mut table = Table::new("Fruit", ["name", "many"]);
        table.row(["apple".to_owned(), "7".to_owned()]);
        assert_eq!(table.render(false), "Fruit\n\nname   many\napple     7\n");
        let markdown = "### Fruit\n\n| name  | many |\n|---|---:|\n| apple |    7 |\n";
        assert_eq!(table.render(true), markdown);
    }
}
