//! What was promised, and what was measured of it.
//!
//! Must not know: how anything is measured.

use crate::stats::{Spread, Table};

/// Promises with their measurements.
pub(crate) struct Goals {
    table: Table,
}

impl Goals {
    pub(crate) fn new() -> Self {
        Self {
            table: Table::new("Goals", &["", "goal", "measured", ""]),
        }
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
        self.table.row(cells.map(str::to_owned).to_vec());
    }

    /// A number of microseconds must not be more than that.
    pub(crate) fn microseconds(&mut self, what: &str, goal: f64, measured: Spread) {
        let met = is_met(measured.median <= goal);
        let shown = format!("{} µs", measured.show(0));
        let cells = [what, &format!("≤ {goal} µs"), &shown, met];
        self.table.row(cells.map(str::to_owned).to_vec());
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
        self.table.row(cells.map(str::to_owned).to_vec());
    }

    pub(crate) fn into_table(self) -> Table {
        self.table
    }
}

fn is_met(is_met: bool) -> &'static str {
    if is_met { "met" } else { "not met" }
}
