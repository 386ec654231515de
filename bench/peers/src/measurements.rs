//! What was measured, one line each, for the program that makes pages and pictures of it.
//!
//! A line has eight fields with tabs between them: the workload, who, its role, the metric, its unit, median, least and most. Of
//! a study of growth the metric is the number on the horizontal axis. `xtask/src/bench/measurements.rs` reads it. Must not
//! know: how anything is measured.

use std::fmt::Write as _;
use std::path::Path;

use crate::stats::Spread;

/// What a contender is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Ours,
    Peer,
    /// It reads and writes the same bytes and decides nothing.
    Floor,
}

impl Role {
    const fn name(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::Peer => "peer",
            Self::Floor => "floor",
        }
    }
}

/// Lines in the order in which they were measured.
#[derive(Default)]
pub(crate) struct Measurements {
    text: String,
}

impl Measurements {
    pub(crate) fn add(
        &mut self,
        workload: &str,
        (name, role): (&str, Role),
        (metric, unit): (&str, &str),
        spread: Spread,
    ) {
        let Spread {
            median,
            least,
            most,
        } = spread;
        let role = role.name();
        let line = format_args!(
            "{workload}\t{name}\t{role}\t{metric}\t{unit}\t{median:.4}\t{least:.4}\t{most:.4}"
        );
        // Writing into a string does not fail.
        let _written = writeln!(self.text, "{line}");
    }

    pub(crate) fn save(&self, path: &Path) -> Result<(), String> {
        std::fs::write(path, &self.text).map_err(|error| format!("{}: {error}", path.display()))
    }
}
