//! What was promised, and what was measured of it.
//!
//! Must not know: how anything is measured.

use crate::stats::{Spread, Table};

/// Promises with their measurements.
pub(crate) struct Goals {
    rows: Vec<[String; 4]>,
}

impl Goals {
    pub(crate) const fn new() -> Self {
        Self { rows: Vec::new() }
    }

    /// Ours must not take more than so many times another's.
    pub(crate) fn at_most(&mut self, what: &str, goal: f64, measured: Option<Spread>) {
        self.line(what, &format!("≤ {goal}×"), measured, |median| {
            median <= goal
        });
    }

    /// Another's must be so many times ours.
    pub(crate) fn at_least(&mut self, what: &str, goal: f64, measured: Option<Spread>) {
        self.line(what, &format!("≥ {goal}×"), measured, |median| {
            median >= goal
        });
    }

    /// A number of megabytes must not be more than that.
    pub(crate) fn megabytes(&mut self, what: &str, goal: f64, measured: f64) {
        let met = is_met(measured <= goal);
        let cells = [
            what,
            &format!("≤ {goal} MB"),
            &format!("{measured:.1} MB"),
            met,
        ];
        self.rows.push(cells.map(str::to_owned));
    }

    /// A number of microseconds must not be more than that.
    pub(crate) fn microseconds(&mut self, what: &str, goal: f64, measured: Spread) {
        let met = is_met(measured.median <= goal);
        let shown = format!("{} µs", measured.show(0));
        let cells = [what, &format!("≤ {goal} µs"), &shown, met];
        self.rows.push(cells.map(str::to_owned));
    }

    fn line(
        &mut self,
        what: &str,
        goal: &str,
        measured: Option<Spread>,
        met: impl Fn(f64) -> bool,
    ) {
        let Some(measured) = measured else { return };
        let met = is_met(met(measured.median));
        let cells = [what, goal, &format!("{}×", measured.show(2)), met];
        self.rows.push(cells.map(str::to_owned));
    }

    /// No table if nothing was promised of the parts that ran.
    pub(crate) fn into_table(self) -> Option<Table> {
        let mut table = Table::new("Goals", &["", "goal", "measured", ""]);
        let is_empty = self.rows.is_empty();
        for row in self.rows {
            table.row(row.to_vec());
        }
        (!is_empty).then_some(table)
    }
}

fn is_met(is_met: bool) -> &'static str {
    if is_met { "met" } else { "not met" }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The appendix had tables of goals without a row.
    #[test]
    fn a_run_without_promises_has_no_table_of_goals() {
        let mut goals = Goals::new();
        goals.at_most("not measured", 1.0, None);
        assert!(goals.into_table().is_none());
        let mut goals = Goals::new();
        goals.megabytes("memory", 80.0, 50.0);
        let table = goals.into_table().map(|table| table.render(true));
        assert!(table.is_some_and(|text| text.contains("| memory | ≤ 80 MB | 50.0 MB | met |")));
    }
}
