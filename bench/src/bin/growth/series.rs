//! Lines of a plot: what a decision costs at each size, with the spread of its laps.
//!
//! Must not know: what is measured.

use crate::measurements::{Measurements, Role};
use crate::stats::{Spread, Table};

/// Lines over one axis.
pub(crate) struct Growth {
    /// Its name in the file of measurements.
    id: &'static str,
    /// What the horizontal axis counts, with its unit.
    axis: &'static str,
    /// What the vertical axis counts, with its unit.
    unit: &'static str,
    lines: Vec<(String, Vec<(f64, Spread)>)>,
}

impl Growth {
    pub(crate) fn new(id: &'static str, axis: &'static str, unit: &'static str) -> Self {
        Self {
            id,
            axis,
            unit,
            lines: Vec::new(),
        }
    }

    /// Adds a point to the line of this name.
    pub(crate) fn point(&mut self, line: &str, size: f64, laps: Vec<f64>) {
        let spread = Spread::of(laps.into_iter());
        eprintln!("{}: {line}, {size}: {}", self.axis, spread.show(1));
        match self.lines.iter_mut().find(|(name, _)| name == line) {
            Some((_, points)) => points.push((size, spread)),
            None => self.lines.push((line.to_owned(), vec![(size, spread)])),
        }
    }

    /// A row for each size. The last column compares it with the first size.
    pub(crate) fn table(&self) -> Table {
        let title = format!("Growth with {}, {}", self.axis, self.unit);
        let mut table = Table::new(title, &["", self.axis, self.unit, "times the first"]);
        for (name, points) in &self.lines {
            let first = points.first().map_or(f64::NAN, |(_, spread)| spread.median);
            for (size, spread) in points {
                table.row(vec![
                    name.clone(),
                    format!("{size}"),
                    spread.show(1),
                    format!("{:.2}", spread.median / first),
                ]);
            }
        }
        table
    }

    pub(crate) fn measurements(&self, all: &mut Measurements) {
        for (name, points) in &self.lines {
            for (size, spread) in points {
                let size = size.to_string();
                all.add(self.id, (name, Role::Ours), (&size, self.unit), *spread);
            }
        }
    }
}
