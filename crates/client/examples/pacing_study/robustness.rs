//! The hidden quota with other servers, networks and clients: the law must not suit one story only.
//!
//! Must not know: how a pacer decides.

use tollgate_client::PacerSettings;

use crate::clients::{Client, Paced};
use crate::server::{Incident, Server};
use crate::simulation::{NETWORK, Network, Outcome, Simulation};
use crate::{DROP, RATE, SECONDS, in_parallel, mean};

/// A story: its name, the number of clients, the server, and what else differs.
struct Story {
    name: &'static str,
    clients: u64,
    rate: f64,
    /// In seconds of the rate.
    burst: f64,
    incident: Option<Incident>,
    rate_after: Option<f64>,
    is_window: bool,
    network: Network,
    start_spread: f64,
    last_start: f64,
    has_idle_clients: bool,
}

impl Story {
    const fn new(name: &'static str, clients: u64) -> Self {
        Self {
            name,
            clients,
            rate: RATE,
            burst: 1.0,
            incident: Some(DROP),
            rate_after: None,
            is_window: false,
            network: NETWORK,
            start_spread: 0.1,
            last_start: 0.0,
            has_idle_clients: false,
        }
    }

    fn run(&self, seed: u64) -> Outcome {
        let mut server = Server::new(self.rate, self.rate * self.burst);
        if let Some(incident) = self.incident {
            server = server.with_incident(incident);
        }
        if let Some(rate) = self.rate_after {
            server = server.with_rate_after(rate);
        }
        if self.is_window {
            server = server.with_windows();
        }
        let clients = (0..self.clients).map(|client| {
            let seed = seed * 1_000 + client;
            Box::new(Paced::new(PacerSettings::default(), seed)) as Box<dyn Client>
        });
        let mut simulation = Simulation::new(clients.collect(), server)
            .with_seed(seed + 1)
            .with_network(self.network)
            .with_start_spread(self.start_spread)
            .with_last_start(self.last_start);
        if self.has_idle_clients {
            simulation = simulation.with_idle_clients();
        }
        simulation.run(SECONDS)
    }

    /// Seconds until 90 % of the quota after the incident are used, at most until the end.
    fn recovery(&self, outcome: &Outcome) -> f64 {
        self.incident.map_or(0.0, |incident| {
            let rate = self.rate_after.unwrap_or(self.rate);
            outcome
                .recovery(incident.to, rate)
                .min(SECONDS - incident.to)
        })
    }
}

fn stories() -> Vec<Story> {
    let mut stories: Vec<Story> = [1, 2, 3, 5, 10, 20, 50, 100]
        .map(|clients| Story::new("the published story", clients))
        .into();
    for clients in [2, 50] {
        let story = |name| Story::new(name, clients);
        stories.extend(quotas(&story));
        stories.extend(networks(&story));
        stories.extend([
            Story {
                start_spread: 30.0,
                ..story("clients start within 30 s")
            },
            Story {
                last_start: 60.0,
                ..story("the last client starts after 60 s")
            },
            Story {
                has_idle_clients: true,
                ..story("every other client is idle half of the time")
            },
        ]);
    }
    stories
}

fn quotas(story: &dyn Fn(&'static str) -> Story) -> Vec<Story> {
    let drop = |part: f64, to: f64| {
        let rate = RATE * part;
        Some(Incident { rate, to, ..DROP })
    };
    vec![
        Story {
            incident: None,
            ..story("not reduced")
        },
        Story {
            incident: drop(0.5, SECONDS),
            ..story("not restored")
        },
        Story {
            incident: drop(0.5, 580.0),
            ..story("halved for 180 s")
        },
        Story {
            incident: drop(0.2, DROP.to),
            ..story("reduced to a fifth")
        },
        Story {
            incident: drop(0.8, DROP.to),
            ..story("reduced to four fifths")
        },
        Story {
            rate_after: Some(RATE * 0.75),
            ..story("restored to three quarters")
        },
        Story {
            rate_after: Some(RATE * 1.5),
            ..story("restored to one and a half")
        },
        Story {
            burst: 10.0,
            ..story("a burst of 10 s")
        },
        Story {
            burst: 0.1,
            ..story("a burst of 0.1 s")
        },
        Story {
            burst: 1.0 / RATE,
            ..story("a burst of one request")
        },
        Story {
            incident: None,
            is_window: true,
            ..story("a window of 1 s")
        },
        Story {
            burst: 60.0,
            incident: None,
            is_window: true,
            ..story("a window of 60 s")
        },
        Story {
            rate: RATE * 10.0,
            incident: drop(5.0, DROP.to),
            ..story("500 requests/s")
        },
        Story {
            rate: RATE / 10.0,
            incident: drop(0.05, DROP.to),
            ..story("5 requests/s")
        },
    ]
}

fn networks(story: &dyn Fn(&'static str) -> Story) -> Vec<Story> {
    let network = |one_way, variation, lateness| Network {
        one_way,
        variation,
        lateness,
    };
    vec![
        Story {
            network: network(50_000, 50_000, 0),
            ..story("loopback")
        },
        Story {
            network: network(100_000, 300_000, 2_000_000),
            ..story("loopback and late timers")
        },
        Story {
            network: network(2_000_000, 1_000_000, 0),
            ..story("a round trip of 5 ms")
        },
        Story {
            network: network(80_000_000, 40_000_000, 0),
            ..story("a round trip of 200 ms")
        },
        Story {
            network: network(15_000_000, 20_000_000, 5_000_000),
            ..story("late timers")
        },
    ]
}

/// Prints the means of so many runs of each story, from this seed.
pub(crate) fn print(runs: u64, seed: u64) {
    println!(
        "clients  story                                        used  refused   each  recovery  fairness"
    );
    for story in stories() {
        let outcomes = in_parallel(seed..seed + runs, |seed| story.run(seed));
        let refused = mean(&outcomes, |run| run.total_refused() as f64);
        println!(
            "{:>7}  {:<43} {:>5.1}% {refused:>7.1} {:>6.1} {:>8.1}s {:>9.3}",
            story.clients,
            story.name,
            mean(&outcomes, |run| run.utilization(SECONDS)) * 100.0,
            refused / story.clients as f64,
            mean(&outcomes, |run| story.recovery(run)),
            mean(&outcomes, Outcome::fairness),
        );
    }
}

#[cfg(test)]
mod tests {
    use crate::{SECONDS, robustness::stories};

    /// One run of each story of two clients, to notice a story that fails completely. A burst of one request does: nothing hides that two requests collide.
    #[test]
    fn two_clients_use_most_of_other_quotas_too() {
        let hopeless = ["a burst of one request", "restored to one and a half"];
        for story in stories().iter().filter(|story| story.clients == 2) {
            let outcome = story.run(1);
            let used = outcome.utilization(SECONDS);
            let least = match story.name {
                name if hopeless.contains(&name) => 0.0,
                "every other client is idle half of the time" | "a window of 1 s" => 0.6,
                _ => 0.75,
            };
            assert!(used >= least, "{}: {used}", story.name);
        }
    }
}
