//! Series over time as one line of text, for terminals.
//!
//! Must not know: what is plotted.

/// The most columns of a plot.
const WIDTH: usize = 60;
const LEVELS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// A line of blocks; a longer series shows the largest value of each column. Every value above 0 is visible.
pub(super) fn sparkline(values: &[f64]) -> String {
    let largest = values.iter().copied().fold(0.0, f64::max);
    if largest <= 0.0 {
        return String::new();
    }
    let chunk = values.len().div_ceil(WIDTH).max(1);
    values
        .chunks(chunk)
        .map(|values| {
            let value = values.iter().copied().fold(0.0, f64::max);
            level(value / largest)
        })
        .collect()
}

fn level(share: f64) -> char {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share between 0 and 1 of nine levels"
    )]
    let index = (share * 8.0).ceil() as usize;
    LEVELS.get(index).copied().unwrap_or('█')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_become_levels_and_long_series_are_shortened_to_their_peaks() {
        assert_eq!(sparkline(&[0.0, 1.0, 4.0, 8.0]), " ▁▄█");
        assert_eq!(sparkline(&[]), "");
        assert_eq!(sparkline(&[0.0, 0.0]), "");
        let mut long = vec![1.0; 600];
        long[301] = 1_000.0;
        let line = sparkline(&long);
        assert_eq!(line.chars().count(), WIDTH);
        assert_eq!(line.chars().filter(|level| *level == '█').count(), 1);
    }
}
