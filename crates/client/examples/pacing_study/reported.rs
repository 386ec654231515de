//! Clients that share a quota which the server reports.
//!
//! Must not know: hidden quotas.

use crate::server::Server;
use crate::simulation::{Outcome, Simulation};
use crate::{mean, paced};

/// Runs of the same case with other seeds.
const RUNS: u64 = 10;

/// Some clients with the same work share a bucket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SharedBucket {
    clients: u64,
    requests: u64,
    rate: f64,
    burst: f64,
}

const fn bucket(clients: u64, requests: u64, rate: f64, burst: f64) -> SharedBucket {
    SharedBucket {
        clients,
        requests,
        rate,
        burst,
    }
}

/// Cases in which clients finish within 5 % of the ideal time and less than 1 % of the requests are refused.
const BUCKETS: [SharedBucket; 16] = [
    bucket(50, 300, 50.0, 300.0),
    bucket(50, 300, 50.0, 100.0),
    bucket(50, 300, 50.0, 50.0),
    bucket(50, 300, 50.0, 25.0),
    bucket(50, 300, 50.0, 3_000.0),
    bucket(50, 100, 50.0, 50.0),
    bucket(50, 30, 50.0, 100.0),
    bucket(50, 30, 50.0, 50.0),
    bucket(2, 1_000, 50.0, 50.0),
    bucket(5, 600, 50.0, 50.0),
    bucket(20, 200, 50.0, 50.0),
    bucket(100, 100, 50.0, 200.0),
    bucket(10, 100, 10.0, 10.0),
    bucket(10, 1_000, 500.0, 500.0),
    bucket(50, 1_000, 500.0, 500.0),
    bucket(200, 100, 1_000.0, 1_000.0),
];

/// Cases that miss one of the two: little work beside a large burst, and twice as many clients as the bucket has units.
const HARD_BUCKETS: [SharedBucket; 2] = [bucket(50, 30, 50.0, 300.0), bucket(100, 100, 50.0, 50.0)];

/// Clients, requests per second and seconds of a window, in the shapes of Discord, OpenAI and GitHub.
const UNKNOWN_WINDOWS: [(u64, f64, f64); 9] = [
    (1, 1.0, 5.0),
    (1, 5.0, 4.0),
    (1, 5.0, 6.0),
    (1, 10.0, 1.0),
    (1, 1.0, 60.0),
    (1, 50.0, 60.0),
    (2, 5.0, 6.0),
    (10, 5.0, 6.0),
    (50, 50.0, 60.0),
];

impl SharedBucket {
    fn ideal(&self) -> f64 {
        ((self.clients * self.requests) as f64 - self.burst) / self.rate
    }

    fn run(&self, seed: u64) -> Outcome {
        let server = Server::new(self.rate, self.burst).with_reports();
        let make = paced();
        let clients = (0..self.clients).map(|client| make(seed * 1_000 + client));
        Simulation::new(clients.collect(), server)
            .with_seed(seed)
            .with_work(self.requests)
            .run(3_000.0)
    }

    fn runs(&self, runs: u64) -> Vec<Outcome> {
        (1..=runs).map(|seed| self.run(seed)).collect()
    }

    /// How much longer than the ideal time a run took.
    fn delay(&self, outcome: &Outcome) -> f64 {
        outcome.finished_at / self.ideal() - 1.0
    }
}

/// Clients without an end of their work, and a quota that resets at the end of a window.
fn shared_window(clients: u64, rate: f64, window: f64) -> Outcome {
    let server = Server::new(rate, rate * window)
        .with_reports()
        .with_windows();
    run_windows(clients, server)
}

/// The same with fields that do not say how long a window is.
fn unknown_window(clients: u64, rate: f64, window: f64) -> Outcome {
    let server = Server::new(rate, rate * window)
        .with_reports()
        .with_windows()
        .with_unknown_window();
    run_windows(clients, server)
}

fn run_windows(clients: u64, server: Server) -> Outcome {
    let clients = (0..clients).map(|client| paced()(client)).collect();
    Simulation::new(clients, server).run(240.0)
}

/// The part of its fair share that a client has got so many seconds after it joined others.
fn joined_part(clients: u64, rate: f64, burst: f64, seconds: f64) -> f64 {
    let server = Server::new(rate, burst).with_reports();
    let all = (0..clients).map(|client| paced()(client)).collect();
    let simulation = Simulation::new(all, server).with_last_start(60.0);
    let outcome = simulation.run(60.0 + seconds);
    let admitted = outcome.admitted.last().copied().unwrap_or_default();
    admitted as f64 / (rate * seconds / clients as f64)
}

fn refused_part(outcome: &Outcome) -> f64 {
    let admitted: u64 = outcome.admitted.iter().sum();
    outcome.total_refused() as f64 / (admitted + outcome.total_refused()) as f64
}

fn most(runs: &[Outcome], value: impl Fn(&Outcome) -> f64) -> f64 {
    runs.iter().map(value).fold(0.0, f64::max)
}

/// Prints all cases.
pub(crate) fn print() {
    println!("\nRateLimit fields of a bucket that clients share, {RUNS} runs");
    println!("clients  requests  rate  burst  ideal    over  worst  refused  worst");
    let lone = [
        bucket(1, 3_000, 50.0, 50.0),
        bucket(1, 3_000, 50.0, 300.0),
        bucket(1, 10_000, 500.0, 500.0),
    ];
    for case in BUCKETS.iter().chain(&HARD_BUCKETS).chain(&lone) {
        let runs = case.runs(RUNS);
        println!(
            "{:>7} {:>9} {:>5} {:>6} {:>5.1}s {:>6.1}% {:>5.1}% {:>7.2}% {:>5.2}%",
            case.clients,
            case.requests,
            case.rate,
            case.burst,
            case.ideal(),
            mean(&runs, |run| case.delay(run)) * 100.0,
            most(&runs, |run| case.delay(run)) * 100.0,
            mean(&runs, refused_part) * 100.0,
            most(&runs, refused_part) * 100.0,
        );
    }
    println!("\nRateLimit fields of a window, 240 s");
    for (clients, rate, window) in [
        (1, 50.0, 60.0),
        (50, 50.0, 60.0),
        (50, 50.0, 5.0),
        (1, 50.0, 1.0),
        (2, 50.0, 1.0),
        (50, 50.0, 1.0),
    ] {
        let outcome = shared_window(clients, rate, window);
        println!(
            "{clients:>2} clients, {rate}/s, window of {window} s: {:.1}% used, {:.2}% refused, fairness {:.3}",
            outcome.utilization(240.0) * 100.0,
            refused_part(&outcome) * 100.0,
            outcome.fairness(),
        );
    }
    println!("\nX-RateLimit fields of a window whose length is not reported, 240 s");
    for (clients, rate, window) in UNKNOWN_WINDOWS {
        let outcome = unknown_window(clients, rate, window);
        println!(
            "{clients:>2} clients, {rate}/s, window of {window} s: {:.1}% used, {:.2}% refused, fairness {:.3}",
            outcome.utilization(240.0) * 100.0,
            refused_part(&outcome) * 100.0,
            outcome.fairness(),
        );
    }
    println!("\na client joins others, part of its fair share after 15, 30 and 60 s");
    for (clients, rate, burst) in [(2, 50.0, 50.0), (2, 50.0, 300.0), (50, 50.0, 50.0)] {
        let part = |seconds| joined_part(clients, rate, burst, seconds);
        println!(
            "{clients:>2} clients, {rate}/s, burst {burst}: {:.2} {:.2} {:.2}",
            part(15.0),
            part(30.0),
            part(60.0),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::{
        BUCKETS, HARD_BUCKETS, UNKNOWN_WINDOWS, bucket, joined_part, mean, most, paced,
        refused_part, shared_window, unknown_window,
    };
    use crate::kinds;
    use crate::server::Server;
    use crate::simulation::Simulation;

    /// Clients that share a small bucket were refused up to 47 % of their requests, and a hundred of them needed up to fifteen
    /// times as long. Each refusal made the gap longer, until it was longer than reports are fresh. Then nothing paced them.
    #[test]
    fn clients_that_share_a_reported_bucket_finish_in_time_and_are_hardly_refused() {
        for case in BUCKETS {
            let runs = case.runs(2);
            let delay = most(&runs, |run| case.delay(run));
            assert!(delay <= 0.05, "{case:?}: {delay}");
            let refused = mean(&runs, refused_part);
            assert!(refused < 0.01, "{case:?}: {refused}");
        }
        for case in HARD_BUCKETS {
            let runs = case.runs(2);
            let delay = most(&runs, |run| case.delay(run));
            assert!(delay <= 0.065, "{case:?}: {delay}");
            let refused = mean(&runs, refused_part);
            assert!(refused < 0.015, "{case:?}: {refused}");
        }
    }

    #[test]
    fn control_retry_loops_are_refused() {
        for (name, make) in kinds(50).iter().skip(1).take(2) {
            let server = Server::new(50.0, 50.0).with_reports();
            let clients = (0..50).map(make).collect();
            let outcome = Simulation::new(clients, server).with_work(30).run(3_000.0);
            assert!(refused_part(&outcome) > 0.01, "{name}");
        }
    }

    /// A lone client took a quarter of the quota that a server reported, because the refill of a full bucket counted as the use
    /// of others.
    #[test]
    fn a_lone_client_uses_all_of_a_reported_bucket() {
        for (rate, burst) in [(50.0, 50.0), (50.0, 100.0), (50.0, 300.0), (500.0, 500.0)] {
            let case = bucket(1, rate as u64 * 60, rate, burst);
            let outcome = case.run(1);
            assert!(case.delay(&outcome) <= 0.05, "{}", case.delay(&outcome));
            assert!(refused_part(&outcome) < 0.01, "{}", refused_part(&outcome));
        }
    }

    /// A lone client spread its requests over the whole window: a thousand requests under a quota of 5,000 an hour took twelve minutes,
    /// and a loop that sends one after another took one.
    #[test]
    fn a_lone_client_does_not_spread_a_few_requests_over_an_hour() {
        for has_length in [true, false] {
            let server = Server::new(5_000.0 / 3_600.0, 5_000.0).with_reports();
            let server = match has_length {
                true => server.with_windows(),
                false => server.with_windows().with_unknown_window(),
            };
            let simulation = Simulation::new(vec![paced()(1)], server).with_work(1_000);
            let outcome = simulation.run(3_600.0);
            assert!(outcome.finished_at < 110.0, "{}", outcome.finished_at);
            assert_eq!(outcome.total_refused(), 0);
        }
    }

    /// A client that was alone has used most of the window when another one joins. Neither may be refused for it, and from the next
    /// window on they share.
    #[test]
    fn a_client_that_joins_a_lone_one_shares_the_next_windows() {
        let server = Server::new(5.0, 300.0).with_reports().with_windows();
        let clients = (0..2).map(|client| paced()(client)).collect();
        let simulation = Simulation::new(clients, server).with_last_start(90.0);
        let outcome = simulation.run(600.0);
        let joined = outcome.admitted.last().copied().unwrap_or_default();
        let fair = 5.0 * (600.0 - 120.0) / 2.0;
        assert!(joined as f64 > 0.8 * fair, "{joined} of {fair}");
        assert!(refused_part(&outcome) < 0.01, "{}", refused_part(&outcome));
    }

    /// A lone client used 60 % of a window of a minute, and fifty clients were refused 95 % of their requests by one of five seconds.
    #[test]
    fn clients_use_almost_all_of_a_reported_window() {
        for (clients, rate, window) in [
            (1, 50.0, 60.0),
            (2, 50.0, 60.0),
            (50, 50.0, 60.0),
            (50, 50.0, 5.0),
            (1, 5.0, 20.0),
        ] {
            let outcome = shared_window(clients, rate, window);
            let used = outcome.utilization(240.0);
            assert!(used >= 0.95, "{clients} {rate} {window}: {used}");
            assert!(refused_part(&outcome) < 0.01, "{}", refused_part(&outcome));
            assert!(outcome.fairness() > 0.95, "{}", outcome.fairness());
        }
    }

    /// A lone client used four of Discord's five requests in five seconds, because it sent the fifth when the next window had begun. A retry loop
    /// was faster. Resets in whole seconds cost short windows the rest.
    #[test]
    fn clients_use_windows_whose_length_is_not_reported() {
        for (clients, rate, window) in UNKNOWN_WINDOWS {
            let outcome = unknown_window(clients, rate, window);
            let used = outcome.utilization(240.0);
            let least = match (rate, window) {
                (1.0, _) | (_, 60.0) => 0.97,
                (_, 1.0) => 0.64,
                _ => 0.88,
            };
            assert!(used >= least, "{clients} {rate} {window}: {used}");
            assert!(refused_part(&outcome) < 0.01, "{}", refused_part(&outcome));
            assert!(outcome.fairness() > 0.9, "{}", outcome.fairness());
        }
    }

    #[test]
    fn a_client_that_joins_others_gets_a_share() {
        for (clients, rate, burst) in [(2, 50.0, 50.0), (2, 50.0, 300.0), (50, 50.0, 50.0)] {
            let part = joined_part(clients, rate, burst, 60.0);
            assert!(part > 0.7, "{clients} {rate} {burst}: {part}");
        }
    }
}
