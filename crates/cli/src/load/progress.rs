//! One line on a terminal while a load runs.
//!
//! Must not know: how results are measured.

use std::time::Duration;

use super::measurements::{Measurements, ResponseClass};
use crate::output::print_error;

const WIDTH: usize = 24;

/// The line, if a person looks at it.
#[derive(Debug)]
pub(super) struct Progress {
    length: Duration,
    is_shown: bool,
    is_drawn: bool,
}

impl Progress {
    pub(super) const fn new(length: Duration, is_shown: bool) -> Self {
        Self {
            length,
            is_shown,
            is_drawn: false,
        }
    }

    pub(super) fn show(&mut self, elapsed: Duration, measurements: &Measurements) {
        if self.is_shown {
            self.is_drawn = true;
            print_error(&drawing(&line(self.length, elapsed, measurements)));
        }
    }

    /// Removes the line.
    pub(super) fn clear(&mut self) {
        if std::mem::take(&mut self.is_drawn) {
            print_error("\r\x1b[K");
        }
    }
}

/// A line in the place of the one before. A narrow terminal cuts it instead of wrapping it: a line that wraps cannot be removed.
fn drawing(line: &str) -> String {
    format!("\r\x1b[?7l{line}\x1b[K\x1b[?7h")
}

fn line(length: Duration, elapsed: Duration, measurements: &Measurements) -> String {
    let share = match length.is_zero() {
        true => 1.0,
        false => (elapsed.as_secs_f64() / length.as_secs_f64()).min(1.0),
    };
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a share between 0 and 1 of a small width"
    )]
    let filled = ((share * WIDTH as f64) as usize).min(WIDTH);
    let bar = "█".repeat(filled) + &"░".repeat(WIDTH - filled);
    let counts = ResponseClass::ALL
        .map(|class| (class.name(), measurements.count(class)))
        .into_iter()
        .chain([("failed", measurements.failed())])
        .filter(|(_, count)| *count > 0)
        .map(|(name, count)| format!("  {count} {name}"));
    let counts: String = counts.collect();
    format!(
        "{bar} {:.0} s  {} sent{counts}",
        elapsed.as_secs_f64(),
        measurements.sent()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A terminal with 40 columns showed every state of the bar below the one before.
    #[test]
    fn the_line_does_not_wrap_and_what_follows_does() {
        let drawing = drawing("12 sent");
        let (before, after) = drawing.split_once("12 sent").unwrap();
        assert!(before.ends_with("\x1b[?7l") && after.ends_with("\x1b[?7h"));
    }

    #[test]
    fn the_bar_fills_with_time_and_never_beyond() {
        let measurements = Measurements::default();
        let bar = |elapsed| {
            line(
                Duration::from_secs(10),
                Duration::from_secs(elapsed),
                &measurements,
            )
        };
        assert!(bar(0).starts_with('░'), "{}", bar(0));
        assert!(bar(5).contains("█░"), "{}", bar(5));
        assert!(bar(99).starts_with(&"█".repeat(WIDTH)) && !bar(99).contains('░'));
        assert!(line(Duration::ZERO, Duration::ZERO, &measurements).contains("0 sent"));
    }
}
