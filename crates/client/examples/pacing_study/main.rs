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

fn main() {
    println!("hidden quota of 3,000/min, halved for 60 s, 15 minutes");
    println!("clients      processes  quota used  refused  most by one  recovery  fairness");
    for processes in [2, 50] {
        for (name, make) in kinds(processes) {
            let outcome = hidden_quota(processes, 1, &make);
            println!(
                "{name:<12} {processes:>9} {:>10.1}% {:>8} {:>12} {:>8.1}s {:>9.3}",
                outcome.utilization(SECONDS) * 100.0,
                outcome.total_refused(),
                outcome.refused.iter().max().copied().unwrap_or(0),
                outcome.recovery(DROP.to, RATE),
                outcome.fairness(),
            );
        }
    }
    println!("\nrecovery against refusals, two processes, mean of 10 runs");
    println!("probe interval  growth  refused  recovery  quota used");
    for (interval, growth) in [
        (1, 1.0),
        (2, 1.0),
        (3, 1.0),
        (3, 1.25),
        (5, 1.0),
        (5, 1.5),
        (10, 1.5),
    ] {
        let settings = move || {
            let interval = Nanos::from_secs(interval);
            PacerSettings::default()
                .with_probes(interval, growth)
                .expect("valid")
        };
        let make: MakeClient = Box::new(move |seed| Box::new(Paced::new(settings(), seed)));
        let runs: Vec<Outcome> = (0..10).map(|seed| hidden_quota(2, seed, &make)).collect();
        println!(
            "{interval:>13}s {growth:>7} {:>8.1} {:>8.1}s {:>10.1}%",
            mean(&runs, |run| run.total_refused() as f64),
            mean(&runs, |run| run.recovery(DROP.to, RATE)),
            mean(&runs, |run| run.utilization(SECONDS)) * 100.0,
        );
    }
    let (outcome, ideal) = shared_work(1);
    println!(
        "\nRateLimit fields, 50 clients with 300 requests each: {:.1} s (ideal {ideal:.1} s), {:.2} % refused",
        outcome.finished_at,
        refused_part(&outcome) * 100.0
    );
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
fn shared_work(seed: u64) -> (Outcome, f64) {
    let (clients, each, burst) = (50, 300, 300.0);
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
        DROP, RATE, SECONDS, hidden_quota, kinds, lone_work, mean, outage, paced, refused_part,
        shared_work,
    };

    #[test]
    fn two_clients_find_a_hidden_quota_and_use_almost_all_of_it() {
        let runs: Vec<_> = (0..5).map(|seed| hidden_quota(2, seed, &paced())).collect();
        assert!(mean(&runs, |run| run.utilization(SECONDS)) >= 0.97);
        assert!(mean(&runs, |run| run.total_refused() as f64) <= 56.0);
        assert!(mean(&runs, |run| run.recovery(DROP.to, RATE)) <= 15.0);
        // Fairness is not asserted: docs/client.md names it as a goal that is missed.
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
        let (outcome, ideal) = shared_work(1);
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
