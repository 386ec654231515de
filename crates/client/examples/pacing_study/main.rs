//! Compares clients of a limited server in simulated time: `cargo run -p tollgate-client --example pacing_study`.
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

mod clients;
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

/// Runs of the same scenario with other seeds.
const RUNS: u64 = 10;

fn main() {
    println!("hidden quota of 3,000/min, halved for 60 s, 15 minutes, mean of {RUNS} runs");
    println!("clients      processes  quota used  refused   each  recovery  fairness  at least");
    for processes in [2, 50] {
        for (name, make) in kinds(processes) {
            let runs = hidden_quota_runs(processes, RUNS, &make);
            let refused = mean(&runs, |run| run.total_refused() as f64);
            println!(
                "{name:<12} {processes:>9} {:>10.1}% {refused:>8.1} {:>6.1} {:>8.1}s {:>9.3} {:>9.3}",
                mean(&runs, |run| run.utilization(SECONDS)) * 100.0,
                refused / f64::from(processes),
                mean(&runs, |run| run.recovery(DROP.to, RATE)),
                mean(&runs, Outcome::fairness),
                least_fairness(&runs),
            );
        }
    }
    println!("\nrecovery against refusals, two processes, mean of {RUNS} runs");
    println!("probe interval  growth  refused  recovery  quota used");
    for (interval, growth) in [
        (2, 1.0),
        (3, 1.0),
        (5, 1.0),
        (8, 1.0),
        (8, 1.05),
        (12, 1.0),
        (20, 1.0),
        (30, 1.0),
    ] {
        let settings = move || {
            let interval = Nanos::from_secs(interval);
            PacerSettings::default()
                .with_probes(interval, growth)
                .expect("valid")
        };
        let make: MakeClient = Box::new(move |seed| Box::new(Paced::new(settings(), seed)));
        let runs = hidden_quota_runs(2, RUNS, &make);
        println!(
            "{interval:>13}s {growth:>7} {:>8.1} {:>8.1}s {:>10.1}%",
            mean(&runs, |run| run.total_refused() as f64),
            mean(&runs, |run| run.recovery(DROP.to, RATE)),
            mean(&runs, |run| run.utilization(SECONDS)) * 100.0,
        );
    }
    println!("\nRateLimit fields, 50 clients");
    for (each, burst) in [
        (300, 300.0),
        (300, 100.0),
        (300, 50.0),
        (30, 300.0),
        (30, 50.0),
    ] {
        let (outcome, ideal) = shared_work(1, each, burst);
        println!(
            "{each} requests each, burst {burst}: {:.1} s (ideal {ideal:.1} s), {:.2} % refused",
            outcome.finished_at,
            refused_part(&outcome) * 100.0
        );
    }
    for (name, make) in kinds(50) {
        let outcome = outage(1, &make);
        println!(
            "outage of 30 s, 50 clients, {name}: {} arrivals in the first second after it",
            outcome.arrivals(230.0)
        );
    }
}

type MakeClient = Box<dyn Fn(u64) -> Box<dyn Client>>;

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
    (0..runs)
        .map(|seed| hidden_quota(processes, seed, make))
        .collect()
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
    let clients = (0..u64::from(processes))
        .map(|client| make(seed * 1_000 + client))
        .collect();
    Simulation::new(clients, server)
        .with_seed(seed + 1)
        .run(SECONDS)
}

/// 50 clients share a quota that the server reports. Returns the outcome and the ideal time.
fn shared_work(seed: u64, each: u64, burst: f64) -> (Outcome, f64) {
    let clients = 50;
    let server = Server::new(RATE, burst).with_reports();
    let make = paced();
    let all = (0..clients)
        .map(|client| make(seed * 1_000 + client))
        .collect();
    let simulation = Simulation::new(all, server).with_seed(seed).with_work(each);
    let ideal = ((clients * each) as f64 - burst) / RATE;
    (simulation.run(3_000.0), ideal)
}

/// One client with a quota that the server reports. Returns the outcome and the ideal time.
#[cfg(test)]
fn lone_work(burst: f64) -> (Outcome, f64) {
    let requests = 3_000;
    let server = Server::new(RATE, burst).with_reports();
    let simulation = Simulation::new(vec![paced()(1)], server).with_work(requests);
    (simulation.run(3_000.0), (requests as f64 - burst) / RATE)
}

fn refused_part(outcome: &Outcome) -> f64 {
    let admitted: u64 = outcome.admitted.iter().sum();
    outcome.total_refused() as f64 / (admitted + outcome.total_refused()) as f64
}

fn mean(runs: &[Outcome], value: impl Fn(&Outcome) -> f64) -> f64 {
    runs.iter().map(value).sum::<f64>() / runs.len() as f64
}

#[cfg(test)]
mod tests {
    use super::{
        DROP, Outcome, RATE, RUNS, SECONDS, hidden_quota, hidden_quota_runs, kinds, least_fairness,
        lone_work, mean, outage, paced, refused_part, shared_work,
    };

    #[test]
    fn two_clients_find_a_hidden_quota_share_it_equally_and_use_almost_all_of_it() {
        let runs = hidden_quota_runs(2, RUNS, &paced());
        assert!(mean(&runs, |run| run.utilization(SECONDS)) >= 0.97);
        assert!(mean(&runs, |run| run.total_refused() as f64) <= 40.0);
        assert!(mean(&runs, |run| run.recovery(DROP.to, RATE)) <= 8.0);
        assert!(least_fairness(&runs) >= 0.95, "{}", least_fairness(&runs));
    }

    #[test]
    fn fifty_clients_find_a_hidden_quota_and_are_refused_a_few_times_each() {
        let runs = hidden_quota_runs(50, 3, &paced());
        let refused = mean(&runs, |run| run.total_refused() as f64 / 50.0);
        assert!(refused <= 6.5, "{refused}");
        assert!(mean(&runs, |run| run.utilization(SECONDS)) >= 0.94);
        assert!(mean(&runs, Outcome::fairness) >= 0.8);
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
    fn clients_that_share_a_reported_quota_finish_in_time_and_are_hardly_refused() {
        let (outcome, ideal) = shared_work(1, 300, 300.0);
        assert!(
            outcome.finished_at <= ideal * 1.05,
            "{} of {ideal}",
            outcome.finished_at
        );
        assert!(refused_part(&outcome) < 0.01, "{}", refused_part(&outcome));
    }

    /// A lone client took a quarter of the quota that a server reported, because the refill of a full bucket counted as the use
    /// of others.
    #[test]
    fn a_lone_client_uses_all_of_a_reported_quota() {
        for burst in [50.0, 100.0, 300.0] {
            let (outcome, ideal) = lone_work(burst);
            assert!(
                outcome.finished_at <= ideal * 1.2,
                "{} of {ideal}",
                outcome.finished_at
            );
            assert!(refused_part(&outcome) < 0.01, "{}", refused_part(&outcome));
        }
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
