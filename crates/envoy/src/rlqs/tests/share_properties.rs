//! What shares promise, whatever is late or lost: never more than there is, and most to those who want most.

use super::simulator::{Mistake, NetworkConditions, SimulatedClient, Simulator};

const SEEDS: u64 = 60;
const CAPACITIES: [u64; 4] = [1, 7, 100, 1_000_000];

/// Runs worlds in which everything goes wrong; the first in which there was too much.
fn first_excess(mistake: Mistake) -> Option<String> {
    for seed in 0..SEEDS {
        for capacity in CAPACITIES {
            let wants = [capacity * 2, capacity, 0, capacity / 3, capacity * 9];
            let world = Simulator::new(capacity, &wants, NetworkConditions::Faulty, seed);
            if let Err(excess) = world.with_mistake(mistake).run(300) {
                return Some(format!("seed {seed}: {excess}"));
            }
        }
    }
    None
}

#[test]
fn what_clients_run_on_never_adds_up_to_more_than_the_limit() {
    assert_eq!(first_excess(Mistake::None), None);
}

#[test]
fn and_most_of_the_limit_is_in_use_where_clients_come_and_go() {
    for seed in 0..20 {
        let wants = [2_000, 1_000, 0, 300, 9_000];
        let mut world = Simulator::new(1_000, &wants, NetworkConditions::Faulty, seed);
        world.run(600).unwrap();
        // Every client is gone for five seconds in forty, and after a restart nobody is given anything for eighteen.
        let used = world.use_percent();
        assert!(used >= 50, "seed {seed}: {used} %");
    }
}

#[test]
fn control_a_server_that_takes_any_report_as_proof_is_caught() {
    assert!(first_excess(Mistake::NoGrace).is_some());
}

#[test]
fn control_a_server_that_learns_nothing_after_a_restart_is_caught() {
    assert!(first_excess(Mistake::NoLearning).is_some());
}

#[test]
fn control_a_server_that_forgets_who_is_gone_is_caught() {
    assert!(first_excess(Mistake::ForgetsTheGone).is_some());
}

#[test]
fn whoever_wants_most_gets_most_and_loses_it_when_another_does() {
    for seed in 0..10 {
        let mut world = Simulator::new(1_000, &[5_000, 10, 10], NetworkConditions::Reliable, seed);
        world.run(40).unwrap();
        assert!(
            world.clients[0].share() >= 850,
            "seed {seed}: {}",
            world.clients[0].share()
        );
        for other in &world.clients[1..] {
            assert!(other.share() >= 10, "seed {seed}: {}", other.share());
        }
        (world.clients[0].wants, world.clients[1].wants) = (10, 5_000);
        world.run(40).unwrap();
        assert!(
            world.clients[1].share() >= 800,
            "seed {seed}: {}",
            world.clients[1].share()
        );
    }
}

#[test]
fn what_is_much_to_a_small_share_is_taken_from_a_large_one_although_it_is_little_there() {
    for seed in 0..10 {
        let mut world = Simulator::new(20, &[500, 1], NetworkConditions::Reliable, seed);
        world.run(40).unwrap();
        assert_eq!(world.clients[1].share(), 1, "seed {seed}");
        world.clients[1].wants = 2;
        world.run(20).unwrap();
        assert_eq!(world.clients[1].share(), 2, "seed {seed}");
        assert_eq!(world.clients[0].share(), 18, "seed {seed}");
    }
}

#[test]
fn those_who_want_the_same_get_about_the_same() {
    let mut world = Simulator::new(900, &[9_000, 9_000, 9_000], NetworkConditions::Reliable, 1);
    world.run(60).unwrap();
    let shares = world.clients.iter().map(SimulatedClient::share);
    assert_eq!(world.running(), 900);
    for share in shares {
        assert!((240..=360).contains(&share), "{share}");
    }
}

#[test]
fn all_of_it_is_given_out_even_if_nobody_wants_it() {
    let mut world = Simulator::new(100, &[0, 0, 0], NetworkConditions::Reliable, 1);
    world.run(60).unwrap();
    assert_eq!(world.running(), 100);
}

#[test]
fn shares_stay_as_they_are_while_demand_only_wavers() {
    let mut world = Simulator::new(1_000, &[700, 200, 300], NetworkConditions::Reliable, 1);
    world.run(60).unwrap();
    let before: Vec<u32> = world.clients.iter().map(|client| client.changes).collect();
    for round in 0..40_u64 {
        for (client, wants) in world.clients.iter_mut().zip([700, 200, 300]) {
            client.wants = wants + wants * (round % 5) / 40;
        }
        world.run(5).unwrap();
    }
    let after: Vec<u32> = world.clients.iter().map(|client| client.changes).collect();
    assert_eq!(before, after);
}

#[test]
fn where_there_is_less_than_one_for_each_the_first_keep_theirs() {
    let mut world = Simulator::new(2, &[9, 9, 9, 9], NetworkConditions::Reliable, 3);
    world.run(60).unwrap();
    assert_eq!(world.running(), 2);
    let changes: u32 = world.clients.iter().map(|client| client.changes).sum();
    world.run(60).unwrap();
    let later: u32 = world.clients.iter().map(|client| client.changes).sum();
    assert_eq!(changes, later);
}
