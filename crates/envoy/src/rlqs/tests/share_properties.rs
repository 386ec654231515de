//! Properties of shares on an unreliable network: never more than the limit, and most for clients with the highest demand.

use super::simulator::{Mistake, NetworkConditions, SimulatedClient, Simulator};

const SEEDS: u64 = 60;
const CAPACITIES: [u64; 4] = [1, 7, 100, 1_000_000];

/// Runs simulations with faults. Returns the first one in which clients used more than the limit.
fn first_excess(mistake: Mistake) -> Option<String> {
    for seed in 0..SEEDS {
        for capacity in CAPACITIES {
            let wants = [capacity * 2, capacity, 0, capacity / 3, capacity * 9];
            let simulator = Simulator::new(capacity, &wants, NetworkConditions::Faulty, seed);
            if let Err(excess) = simulator.with_mistake(mistake).run(300) {
                return Some(format!("seed {seed}: {excess}"));
            }
        }
    }
    None
}

#[test]
fn shares_in_use_never_add_up_to_more_than_the_limit() {
    assert_eq!(first_excess(Mistake::None), None);
}

#[test]
fn most_of_the_limit_is_in_use_although_clients_reconnect() {
    for seed in 0..20 {
        let wants = [2_000, 1_000, 0, 300, 9_000];
        let mut simulator = Simulator::new(1_000, &wants, NetworkConditions::Faulty, seed);
        simulator.run(600).unwrap();
        // Every client is disconnected for 5 s in 40, and after a restart nothing is assigned for 18 s.
        let used = simulator.use_percent();
        assert!(used >= 50, "seed {seed}: {used} %");
    }
}

#[test]
fn control_a_server_that_takes_any_report_as_proof_is_detected() {
    assert!(first_excess(Mistake::NoGrace).is_some());
}

#[test]
fn control_a_server_that_does_not_wait_after_a_restart_is_detected() {
    assert!(first_excess(Mistake::NoWaitAfterRestart).is_some());
}

#[test]
fn control_a_server_that_frees_shares_of_disconnected_clients_is_detected() {
    assert!(first_excess(Mistake::FreesDisconnected).is_some());
}

#[test]
fn the_client_with_the_highest_demand_gets_most_until_another_has_a_higher_one() {
    for seed in 0..10 {
        let mut simulator =
            Simulator::new(1_000, &[5_000, 10, 10], NetworkConditions::Reliable, seed);
        simulator.run(40).unwrap();
        assert!(
            simulator.clients[0].share() >= 850,
            "seed {seed}: {}",
            simulator.clients[0].share()
        );
        for other in &simulator.clients[1..] {
            assert!(other.share() >= 10, "seed {seed}: {}", other.share());
        }
        (simulator.clients[0].wants, simulator.clients[1].wants) = (10, 5_000);
        simulator.run(40).unwrap();
        assert!(
            simulator.clients[1].share() >= 800,
            "seed {seed}: {}",
            simulator.clients[1].share()
        );
    }
}

#[test]
fn a_significant_gain_of_a_small_share_is_taken_from_a_large_one() {
    for seed in 0..10 {
        let mut simulator = Simulator::new(20, &[500, 1], NetworkConditions::Reliable, seed);
        simulator.run(40).unwrap();
        assert_eq!(simulator.clients[1].share(), 1, "seed {seed}");
        simulator.clients[1].wants = 2;
        simulator.run(20).unwrap();
        assert_eq!(simulator.clients[1].share(), 2, "seed {seed}");
        assert_eq!(simulator.clients[0].share(), 18, "seed {seed}");
    }
}

#[test]
fn clients_with_the_same_demand_get_similar_shares() {
    let mut simulator = Simulator::new(900, &[9_000, 9_000, 9_000], NetworkConditions::Reliable, 1);
    simulator.run(60).unwrap();
    let shares = simulator.clients.iter().map(SimulatedClient::share);
    assert_eq!(simulator.running(), 900);
    for share in shares {
        assert!((240..=360).contains(&share), "{share}");
    }
}

#[test]
fn the_whole_limit_is_assigned_even_without_demand() {
    let mut simulator = Simulator::new(100, &[0, 0, 0], NetworkConditions::Reliable, 1);
    simulator.run(60).unwrap();
    assert_eq!(simulator.running(), 100);
}

#[test]
fn shares_do_not_change_while_demand_fluctuates_slightly() {
    let mut simulator = Simulator::new(1_000, &[700, 200, 300], NetworkConditions::Reliable, 1);
    simulator.run(60).unwrap();
    let before: Vec<u32> = simulator
        .clients
        .iter()
        .map(|client| client.changes)
        .collect();
    for round in 0..40_u64 {
        for (client, wants) in simulator.clients.iter_mut().zip([700, 200, 300]) {
            client.wants = wants + wants * (round % 5) / 40;
        }
        simulator.run(5).unwrap();
    }
    let after: Vec<u32> = simulator
        .clients
        .iter()
        .map(|client| client.changes)
        .collect();
    assert_eq!(before, after);
}

#[test]
fn with_fewer_units_than_clients_the_first_keep_theirs() {
    let mut simulator = Simulator::new(2, &[9, 9, 9, 9], NetworkConditions::Reliable, 3);
    simulator.run(60).unwrap();
    assert_eq!(simulator.running(), 2);
    let changes: u32 = simulator.clients.iter().map(|client| client.changes).sum();
    simulator.run(60).unwrap();
    let later: u32 = simulator.clients.iter().map(|client| client.changes).sum();
    assert_eq!(changes, later);
}
