//! What clients without a coordinator can reach at best: refusals against the time until the restored quota is found.
//!
//! A look is one request above the reduced quota. The server refuses it as long as the quota is reduced, so each look costs one
//! refusal. The best clients know everything else: their rates, the rates of the others, and the moment of the reduction. Must
//! not know: our client.

use crate::RATE;

/// For how long the quota is reduced.
const REDUCED: f64 = 60.0;
/// Each process is refused once at the start and once at the reduction: one that is not refused knows of neither.
const WITHOUT_LOOKS: f64 = 2.0;
const RUNS: u64 = 10_000;
const MANY: u64 = 50;
/// The goal for the recovery, in seconds.
const GOAL: f64 = 3.0;
/// A round trip of the study, in seconds. Its half varies by a fifth of it.
const ROUND_TRIP: f64 = 0.05;
/// By how many doublings the rate grows in a second when the start ends.
const DOUBLINGS: f64 = 0.5;
/// After its look a client leaves out so many requests.
const PAUSE: f64 = 3.0;

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
    let (in_flight, look) = (refused_in_flight(), refusals_of_a_look());
    // Each process measures its rate by a second refusal after the start.
    let without_looks = 2.0 * WITHOUT_LOOKS + 2.0 + in_flight;
    println!(
        "\ntwo processes with a round trip of {:.0} ms: {in_flight:.1} refusals in flight, {look:.2} for each look",
        ROUND_TRIP * 1e3
    );
    println!("refused  looks  first find, alternating: mean");
    for refused in [20.0, 24.0, 26.0, 29.0, 37.0] {
        let looks = (refused - without_looks) / look;
        println!("{refused:>7} {looks:>6.1} {:>14.1}s", REDUCED / looks / 2.0);
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
    print_cuts();
}

/// What it takes to reach fifty processes that each see only their own responses.
fn print_cuts() {
    println!("\nfifty processes: refused each until a cut has reached as many as it takes");
    println!("cut to  start: all but one  all  reduction: until the quota suffices");
    for cut in [0.5, 0.47, 0.4, 0.25, 0.0] {
        let enough = remaining(MANY, cut, 0.5);
        // Nobody else reaches the processes that are left when the server no longer refuses.
        let start = |left: u64| {
            let is_reached = enough <= left;
            let each = refused_by_cuts(MANY, left, cut) / MANY as f64;
            if is_reached {
                format!("{each:.2}")
            } else {
                "-".to_owned()
            }
        };
        println!(
            "{cut:>6} {:>19} {:>4} {:>36.2}",
            start(1),
            start(0),
            refused_by_cuts(MANY, enough, cut) / MANY as f64
        );
    }
    let looks = (1..).find(|looks| REDUCED / f64::from(looks + 1) <= GOAL);
    let looks = f64::from(looks.unwrap_or_default());
    println!(
        "looks for a first find within {GOAL:.0} s in the mean, at random times: {looks:.0}, {:.2} each",
        looks / MANY as f64
    );
}

/// The refusals of many clients with equal rates until all but `left` were refused once. A client that is refused cuts its rate to `cut`,
/// once, and does not pause.
///
/// The server refuses requests at random, in proportion to rates. If `s` clients were not refused yet, a refusal reaches one of them with the probability
/// `s / (s + cut * (clients - s))`. So refusals reach clients again that have cut their rates, and the last client costs most. This holds however many requests are
/// refused in a second.
fn refused_by_cuts(clients: u64, left: u64, cut: f64) -> f64 {
    let refused = |rest: u64| 1.0 - cut + cut * clients as f64 / rest as f64;
    (left + 1..=clients).map(refused).sum()
}

/// How many clients still have their rate when the others' cuts let the server admit everything. Its quota is this part of what all of them sent.
fn remaining(clients: u64, cut: f64, quota: f64) -> u64 {
    (clients as f64 * (quota - cut).max(0.0) / (1.0 - cut)) as u64
}

/// The requests of two processes that the server refuses because they were sent before its first refusal was known: when the burst at the start ends, and when
/// the quota is halved. The burst of a second hides how far the rate is above the quota.
fn refused_in_flight() -> f64 {
    let growth = DOUBLINGS * std::f64::consts::LN_2;
    // With a rate of x quotas, the requests above the quota are (x - 1 - ln x) / growth seconds of it.
    let mut peak = 2.0_f64;
    for _ in 0..100 {
        peak = 1.0 + peak.ln() + growth;
    }
    (peak - 1.0) * RATE * ROUND_TRIP + 0.5 * RATE * ROUND_TRIP
}

/// The mean refusals of two processes for each look: a look empties the server's bucket, so that the other process is refused as well. It may come just
/// before the last request of the look, or soon after it. The processes use 98 % of the reduced quota.
fn refusals_of_a_look() -> f64 {
    let mut fraction = random();
    let quota = RATE / 2.0;
    let gap = 2.0 / (quota * 0.98);
    let mut refused = 0_u32;
    for _ in 0..RUNS {
        let mut way = || ROUND_TRIP / 2.0 + ROUND_TRIP / 5.0 * (2.0 * fraction() - 1.0);
        let mut arrivals: Vec<(f64, bool)> = Vec::new();
        let phase = gap * way() / ROUND_TRIP;
        arrivals.extend((0..25).map(|request| (phase + gap * f64::from(request) + way(), false)));
        arrivals.push((way(), true));
        let (mut tokens, mut last) = (2.0 + 3.0 * way() / ROUND_TRIP, 0.0);
        while !arrivals.is_empty() {
            let next = arrivals.iter().enumerate();
            let (index, _) = next
                .min_by(|(_, left), (_, right)| left.0.total_cmp(&right.0))
                .expect("it is not empty");
            let (at, is_look) = arrivals.swap_remove(index);
            tokens += quota * (at - last);
            last = at;
            let is_admitted = tokens >= 1.0;
            tokens -= f64::from(u8::from(is_admitted));
            refused += u32::from(!is_admitted);
            if is_look && is_admitted {
                arrivals.push((at + way() + way(), true));
            } else if is_look {
                let end = at + way() + gap * PAUSE;
                arrivals.retain(|(at, _)| *at < end);
            }
        }
    }
    f64::from(refused) / RUNS as f64
}

fn random() -> impl FnMut() -> f64 {
    let mut seed = 1_u64;
    move || {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (seed >> 11) as f64 / (1_u64 << 53) as f64
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
    let mut fraction = random();
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
    use super::{
        finds_needed, nth_find, refusals_of_a_look, refused_by_cuts, refused_in_flight, remaining,
    };

    /// The mean of the smallest of two uniform times is a third of the interval: 13 looks of two processes are needed for a mean of 3 s.
    #[test]
    fn the_bounds_are_those_of_uniform_phases() {
        assert!((nth_find(2, 1, 10.0) - 2.0).abs() < 0.05);
        assert_eq!(finds_needed(50.0, 1.4), 23);
        assert_eq!(finds_needed(2.0, 1.4), 1);
    }

    /// With a round trip of no time, a look of two clients costs a quarter of a refusal beside its own: the other request comes within 80 ms, and the
    /// bucket gains a token in 40 ms.
    #[test]
    fn a_look_costs_more_than_its_own_refusal() {
        assert!((1.25..2.0).contains(&refusals_of_a_look()));
        assert!((3.0..5.0).contains(&refused_in_flight()));
    }

    /// A cut to nothing reaches every client once. A cut to half reaches the last ones only after others were refused several times.
    #[test]
    fn a_cut_to_half_reaches_all_clients_with_almost_three_refusals_of_each() {
        assert!((refused_by_cuts(50, 0, 0.0) - 50.0).abs() < 1e-9);
        assert!((refused_by_cuts(50, 0, 0.5) / 50.0 - 2.75).abs() < 0.01);
        // Half of the clients that stop are enough for half of the quota.
        assert_eq!(remaining(50, 0.0, 0.5), 25);
        assert_eq!(remaining(50, 0.5, 0.5), 0);
    }

    /// The same as a lottery: refusals hit clients at random, in proportion to their rates.
    #[test]
    fn random_refusals_need_as_many() {
        let mut fraction = super::random();
        let mut sum = 0_u32;
        for _ in 0..2_000 {
            let mut rates = [1.0_f64; 50];
            while rates.contains(&1.0) {
                let mut drawn = fraction() * rates.iter().sum::<f64>();
                let hit = rates.iter().position(|rate| {
                    drawn -= rate;
                    drawn < 0.0
                });
                rates[hit.unwrap_or(0)] = 0.5;
                sum += 1;
            }
        }
        let mean = f64::from(sum) / 2_000.0;
        assert!((mean - refused_by_cuts(50, 0, 0.5)).abs() < 2.5, "{mean}");
    }
}
