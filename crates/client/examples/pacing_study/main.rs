//! Compares clients of a limited server in simulated time: `cargo run --release -p tollgate-client --example pacing_study`.
//!
//! - without arguments: the tables of `docs/client.md`
//! - `refusals [RUNS [SEED]]`: the hidden quota, and when its refusals happen
//! - `robustness [RUNS [SEED]]`: the same client where the quota, the network or the clients are others
//!
//! Its tests assert what `docs/client.md` claims. Must not know: how a pacer decides.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a study: its numbers are small, and it may stop at what it did not expect"
)]

mod bounds;
mod clients;
mod refusals;
mod reported;
mod robustness;
mod server;
mod simulation;

use tollgate_client::{Nanos, PacerSettings};

use crate::clients::{Client, FixedRate, Paced, Workers};
use crate::server::{Incident, Server};
use crate::simulation::{Outcome, Simulation};

/// 3,000 requests a minute.
const RATE: f64 = 50.0;
const SECONDS: f64 = 900.0;
const DROP: Incident = Incident {
    from: 400.0,
    to: 460.0,
    rate: RATE / 2.0,
};

/// Runs of the same scenario with other seeds, in tests and for the tables.
#[cfg(test)]
const RUNS: u64 = 10;
const TABLE_RUNS: u64 = 200;
/// Two processes recover at a time that chance decides: the mean needs more runs.
const TWO_PROCESS_RUNS: u64 = 400;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize| args.get(index).and_then(|number| number.parse().ok());
    let (runs, seed) = (number(1), number(2).unwrap_or(0));
    match args.first().map(String::as_str) {
        None => print_all(),
        Some("refusals") => refusals::print(runs, seed),
        Some("robustness") => robustness::print(runs.unwrap_or(10), seed),
        Some(other) => println!("it knows `refusals` and `robustness`, not `{other}`"),
    }
}

fn print_all() {
    print_comparison();
    print_probes(
        2,
        TWO_PROCESS_RUNS,
        &[
            (3, 1.05),
            (5, 1.05),
            (6, 1.05),
            (7, 1.05),
            (8, 1.05),
            (12, 1.05),
            (20, 1.05),
            (30, 1.05),
        ],
    );
    print_probes(
        50,
        TABLE_RUNS,
        &[
            (4, 1.05),
            (6, 1.05),
            (7, 1.05),
            (12, 1.05),
            (20, 1.05),
            (40, 1.05),
        ],
    );
    bounds::print();
    print_start();
    reported::print();
    for (name, make) in kinds(50) {
        let outcome = outage(1, &make);
        println!(
            "outage of 30 s, 50 clients, {name}: {} arrivals in the first second after it",
            outcome.arrivals(230.0)
        );
    }
}

fn print_comparison() {
    println!("hidden quota of 3,000/min, halved for 60 s, 15 minutes");
    println!(
        "clients      processes  runs  quota used  refused   each  recovery  fairness  at least"
    );
    for processes in [2, 50] {
        for (name, make) in kinds(processes) {
            let count = match (name, processes) {
                ("tollgate", 2) => TWO_PROCESS_RUNS,
                ("tollgate", _) => TABLE_RUNS,
                _ => 10,
            };
            let runs = hidden_quota_runs(processes, count, &make);
            let refused = mean(&runs, |run| run.total_refused() as f64);
            println!(
                "{name:<12} {processes:>9} {count:>5} {:>10.1}% {refused:>8.1} {:>6.1} {:>8.1}s {:>9.3} {:>9.3}",
                mean(&runs, |run| run.utilization(SECONDS)) * 100.0,
                refused / f64::from(processes),
                mean(&runs, |run| run.recovery(DROP.to, RATE)),
                mean(&runs, Outcome::fairness),
                least_fairness(&runs),
            );
        }
    }
}

/// What it costs to look more often for the restored quota.
fn print_probes(processes: u32, count: u64, probes: &[(u64, f64)]) {
    println!("\nrecovery against refusals, {processes} processes, mean of {count} runs");
    println!("probe interval  growth  refused each  recovery  quota used  fairness");
    for &(interval, growth) in probes {
        let make: MakeClient = Box::new(move |seed| {
            let settings = PacerSettings::default().with_probes(Nanos::from_secs(interval), growth);
            Box::new(Paced::new(settings.expect("valid"), seed))
        });
        let runs = hidden_quota_runs(processes, count, &make);
        println!(
            "{interval:>13}s {growth:>7} {:>13.1} {:>8.1}s {:>10.1}% {:>9.3}",
            mean(&runs, |run| run.total_refused() as f64) / f64::from(processes),
            mean(&runs, |run| run.recovery(DROP.to, RATE)),
            mean(&runs, |run| run.utilization(SECONDS)) * 100.0,
            mean(&runs, Outcome::fairness),
        );
    }
}

/// A story of a minute is mostly the search for the quota.
fn print_start() {
    println!(
        "\nhidden quota without a reduction, used in the first seconds, mean of {TABLE_RUNS} runs"
    );
    for processes in [1, 2, 50] {
        let used = |seconds: f64| {
            let run = |seed| run_for(seconds, processes, seed, Server::new(RATE, RATE), &paced());
            let runs: Vec<_> = (0..TABLE_RUNS).map(run).collect();
            mean(&runs, |run| run.utilization(seconds)) * 100.0
        };
        println!(
            "{processes:>2} processes: {:.0}% in 20 s, {:.0}% in 60 s, {:.0}% in 300 s",
            used(20.0),
            used(60.0),
            used(300.0)
        );
    }
    let reduced = Incident {
        from: 20.0,
        to: 35.0,
        ..DROP
    };
    let run = |seed| {
        let server = Server::new(RATE, RATE).with_incident(reduced);
        run_for(60.0, 2, seed, server, &paced())
    };
    let runs: Vec<_> = (0..TABLE_RUNS).map(run).collect();
    println!(
        " 2 processes, halved from 20 s to 35 s: {:.0}% in 60 s, {:.1} refused",
        mean(&runs, |run| run.utilization(60.0)) * 100.0,
        mean(&runs, |run| run.total_refused() as f64)
    );
}

type MakeClient = Box<dyn Fn(u64) -> Box<dyn Client> + Sync>;

fn paced() -> MakeClient {
    Box::new(|seed| Box::new(Paced::new(PacerSettings::default(), seed)))
}

fn kinds(processes: u32) -> [(&'static str, MakeClient); 4] {
    [
        ("tollgate", paced()),
        // Four workers, or one where there are many processes.
        (
            "retry",
            Box::new(move |_| {
                Box::new(Workers::new(
                    if processes > 10 { 1 } else { 4 },
                    Nanos::ZERO,
                ))
            }),
        ),
        (
            "backoff 1 s",
            Box::new(|_| Box::new(Workers::new(4, Nanos::from_secs(1)))),
        ),
        (
            "fixed rate",
            Box::new(move |_| Box::new(FixedRate::new(RATE / f64::from(processes)))),
        ),
    ]
}

fn hidden_quota(processes: u32, seed: u64, make: &MakeClient) -> Outcome {
    let server = Server::new(RATE, RATE).with_incident(DROP);
    run(processes, seed, server, make)
}

fn hidden_quota_runs(processes: u32, runs: u64, make: &MakeClient) -> Vec<Outcome> {
    in_parallel(0..runs, |seed| hidden_quota(processes, seed, make))
}

/// Runs with each of these seeds, on all processors.
fn in_parallel(seeds: std::ops::Range<u64>, run: impl Fn(u64) -> Outcome + Sync) -> Vec<Outcome> {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get) as u64;
    std::thread::scope(|scope| {
        let run = &run;
        let share = |first: u64| {
            let seeds = seeds.clone().skip(first as usize).step_by(threads as usize);
            scope.spawn(move || seeds.map(run).collect::<Vec<_>>())
        };
        let shares: Vec<_> = (0..threads).map(share).collect();
        let outcomes = shares.into_iter().map(std::thread::ScopedJoinHandle::join);
        outcomes
            .flat_map(|outcomes| outcomes.expect("a run does not panic"))
            .collect()
    })
}

fn least_fairness(runs: &[Outcome]) -> f64 {
    runs.iter().map(Outcome::fairness).fold(1.0, f64::min)
}

fn outage(seed: u64, make: &MakeClient) -> Outcome {
    let incident = Incident {
        from: 200.0,
        to: 230.0,
        rate: 0.0,
    };
    let server = Server::new(RATE, RATE).with_incident(incident);
    let clients = (0..50).map(|client| make(seed * 1_000 + client)).collect();
    Simulation::new(clients, server).with_seed(seed).run(300.0)
}

fn run(processes: u32, seed: u64, server: Server, make: &MakeClient) -> Outcome {
    run_for(SECONDS, processes, seed, server, make)
}

fn run_for(seconds: f64, processes: u32, seed: u64, server: Server, make: &MakeClient) -> Outcome {
    let clients = (0..u64::from(processes))
        .map(|client| make(seed * 1_000 + client))
        .collect();
    Simulation::new(clients, server)
        .with_seed(seed + 1)
        .run(seconds)
}

fn mean(runs: &[Outcome], value: impl Fn(&Outcome) -> f64) -> f64 {
    runs.iter().map(value).sum::<f64>() / runs.len() as f64
}

#[cfg(test)]
mod tests {
    use super::{
        DROP, Outcome, RATE, RUNS, SECONDS, hidden_quota, hidden_quota_runs, kinds, least_fairness,
        mean, outage, paced,
    };

    #[test]
    fn two_clients_find_a_hidden_quota_share_it_equally_and_use_almost_all_of_it() {
        let runs = hidden_quota_runs(2, RUNS, &paced());
        assert!(mean(&runs, |run| run.utilization(SECONDS)) >= 0.97);
        assert!(mean(&runs, |run| run.total_refused() as f64) <= 32.0);
        assert!(mean(&runs, |run| run.recovery(DROP.to, RATE)) <= 3.5);
        assert!(least_fairness(&runs) >= 0.97, "{}", least_fairness(&runs));
    }

    /// Two refusals in quick succession at the reduction lowered the rate without a search. One of fifty runs, and one of twelve over loopback, then
    /// used 88 % of the quota: a process held half of its rate until the end.
    #[test]
    fn no_process_forgets_its_former_rate() {
        for seed in [35, 65, 104, 173, 261] {
            let run = hidden_quota(2, seed, &paced());
            let used = run.utilization(SECONDS);
            assert!(used >= 0.93, "seed {seed}: {used}");
        }
    }

    #[test]
    fn fifty_clients_find_a_hidden_quota_and_are_refused_a_few_times_each() {
        let runs = hidden_quota_runs(50, 3, &paced());
        let refused = mean(&runs, |run| run.total_refused() as f64 / 50.0);
        assert!(refused <= 7.1, "{refused}");
        assert!(mean(&runs, |run| run.utilization(SECONDS)) >= 0.975);
        assert!(mean(&runs, Outcome::fairness) >= 0.89);
        assert!(mean(&runs, |run| run.recovery(DROP.to, RATE)) <= 4.0);
    }

    #[test]
    fn control_a_retry_loop_is_refused_thousands_of_times() {
        let [_, (name, retry), ..] = kinds(2);
        let outcome = hidden_quota(2, 1, &retry);
        assert!(
            outcome.total_refused() > 5_000,
            "{name}: {}",
            outcome.total_refused()
        );
    }

    #[test]
    fn clients_come_back_from_an_outage_without_a_herd() {
        let arrivals = outage(1, &paced()).arrivals(230.0);
        assert!(f64::from(arrivals) <= RATE * 1.5, "{arrivals}");
        let [_, _, (_, backoff), _] = kinds(50);
        assert!(
            f64::from(outage(1, &backoff).arrivals(230.0)) > RATE * 1.5,
            "a control that can fail"
        );
    }
}
