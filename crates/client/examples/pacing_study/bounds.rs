//! What clients without a coordinator can reach at best: refusals against the time until the restored quota is found.
//!
//! A look is one request above the reduced quota. The server refuses it as long as the quota is reduced, so each look costs one
//! refusal. The best clients know everything else: their rates, the rates of the others, and the moment of the reduction. Must
//! not know: our client.

/// For how long the quota is reduced.
const REDUCED: f64 = 60.0;
/// Each process is refused once at the start and once at the reduction: one that is not refused knows of neither.
const WITHOUT_LOOKS: f64 = 2.0;
const RUNS: u64 = 10_000;

pub(crate) fn print() {
    println!("\nbest clients, two processes: refused, and the first find after the return");
    println!("refused  looks  alternating: mean  at most  own random phases: mean");
    for refused in [12, 14, 17, 20, 24, 28, 37] {
        let looks = f64::from(refused) - 2.0 * WITHOUT_LOOKS;
        let gap = REDUCED / looks;
        println!(
            "{refused:>7} {looks:>6} {:>17.1}s {gap:>7.1}s {:>23.1}s",
            gap / 2.0,
            nth_find(2, 1, looks / 2.0)
        );
    }
    println!("\nbest clients, fifty processes: 90 % of the restored quota is used");
    println!("refused each  finder uses  finds needed  mean");
    for refused in [3.0, 4.0, 6.0] {
        for multiple in [1.0, 1.4, 3.0, 10.0, 40.5] {
            let needed = finds_needed(50.0, multiple);
            println!(
                "{refused:>12} {multiple:>10}x {needed:>13} {:>5.1}s",
                nth_find(50, needed, refused - WITHOUT_LOOKS)
            );
        }
    }
}

/// How many processes have to find the quota until 90 % of it are used. Each that found it uses a multiple of its fair share, the
/// others half of theirs.
fn finds_needed(processes: f64, multiple: f64) -> u64 {
    let missing = processes * (0.9 - 0.5);
    (missing / (multiple - 0.5)).ceil() as u64
}

/// The mean time until that many processes have found the quota. Each looks `looks` times in the reduction, evenly, at a phase of
/// its own.
fn nth_find(processes: u64, needed: u64, looks: f64) -> f64 {
    let interval = REDUCED / looks;
    let mut seed = 1_u64;
    let mut fraction = || {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (seed >> 11) as f64 / (1_u64 << 53) as f64
    };
    let mut sum = 0.0;
    for _ in 0..RUNS {
        let mut finds: Vec<f64> = (0..processes).map(|_| interval * fraction()).collect();
        finds.sort_by(f64::total_cmp);
        sum += finds[needed.min(processes) as usize - 1];
    }
    sum / RUNS as f64
}

#[cfg(test)]
mod tests {
    use super::{finds_needed, nth_find};

    /// The mean of the smallest of two uniform times is a third of the interval: 13 looks of two processes are needed for a mean of 3 s.
    #[test]
    fn the_bounds_are_those_of_uniform_phases() {
        assert!((nth_find(2, 1, 10.0) - 2.0).abs() < 0.05);
        assert_eq!(finds_needed(50.0, 1.4), 23);
        assert_eq!(finds_needed(2.0, 1.4), 1);
    }
}
