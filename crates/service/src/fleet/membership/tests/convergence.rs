//! Random histories of changes and register failures: all nodes converge to the same state.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tollgate_core::Nanos;
use tollgate_engine::control::{Halt, OperatorState, Switch};
use tollgate_store::register::{Heartbeat, NodeId, NodeLoad, NodeUsage, Register as _};
use tollgate_testkit::register::{ModelRegister, RegisterFault};

use super::{BY, TestService, service};
use crate::Secret;
use crate::fleet::membership::register_sync::RegisterSync;
use crate::fleet::membership::signed_register::SignedRegister;
use crate::fleet::membership::{Membership, MembershipSettings};

/// A seeded random number generator (splitmix64).
struct SeededRng(u64);

impl SeededRng {
    fn below(&mut self, bound: u64) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((word ^ (word >> 31)) % bound).unwrap()
    }
}

/// A node whose rounds are run by hand.
struct ManualNode<'a> {
    service: Arc<TestService>,
    sync: RegisterSync<'a>,
    /// The register as this node sees it.
    signed: SignedRegister,
    id: NodeId,
}

impl ManualNode<'_> {
    fn random_change(&self, rng: &mut SeededRng) {
        let control = self.service.engine().control();
        let key = ["alice", "bob"][rng.below(2)];
        // Changes that are not possible, such as removing a missing override, have no effect.
        let _done_or_refused = match rng.below(6) {
            0 => control.block_key("api", &[key], None, BY),
            1 => control.unblock_key("api", &[key], BY),
            2 => control.override_key("api", &[key], ["5/s", "6/s"][rng.below(2)], None, BY),
            3 => control.remove_override("api", &[key], BY),
            4 => control.switch(Some("api"), Switch::halted(Halt::Off), BY),
            _ => control.switch(Some("api"), Switch::default(), BY),
        };
    }

    async fn round(&mut self) {
        let heartbeat = Heartbeat {
            node: self.id,
            secret_fingerprint: 1,
            policy_fingerprint: 2,
            generation: 3,
            version: "0.0.0".into(),
            load: NodeLoad::default(),
            usage: NodeUsage::default(),
            seal: None,
        };
        let members = self.signed.heartbeat(&heartbeat, Nanos::MINUTE).await;
        let _pushed = self.sync.push_changes(&self.signed, &*self.service).await;
        let Ok(members) = members else {
            return;
        };
        let _pulled = self
            .sync
            .pull_changes(&self.signed, &*self.service, members.cursor)
            .await;
    }
}

/// The node's operator state as text. Only the node on which a key was named shows it by name, so that is normalised.
fn state_text(service: &TestService) -> String {
    let OperatorState {
        everything,
        limits,
        mut overrides,
        mut blocks,
    } = service.engine().control().operator_state();
    for one in &mut overrides {
        one.key.shown = one.key.key.clone();
    }
    let mut texts: Vec<String> = overrides.iter().map(|one| format!("{one:?}")).collect();
    for block in &mut blocks {
        if let tollgate_engine::control::Block::Key { key, .. } = block {
            key.shown = key.key.clone();
        }
        texts.push(format!("{block:?}"));
    }
    texts.sort();
    format!("{everything:?} {limits:?} {texts:?}")
}

/// Runs random changes and rounds on a register that fails and loses its latest entries, then some rounds without failures.
async fn random_history(seed: u64, final_rounds: u32) -> (Vec<String>, bool) {
    let register = Arc::new(ModelRegister::default());
    let mut rng = SeededRng(seed);
    let puts = [const { AtomicU64::new(0) }; 3];
    let mut nodes: Vec<ManualNode<'_>> = (1..)
        .zip(&puts)
        .map(|(id, puts)| {
            let service = service();
            service.engine().control().start_sharing(Arc::new(|| {}));
            let (id, secret) = (
                NodeId(id),
                Secret::from_shared_text(b"the secret of this fleet"),
            );
            let membership = Membership::new(secret.unwrap(), MembershipSettings::default());
            ManualNode {
                service,
                sync: RegisterSync::new(id, puts),
                signed: membership.signed(Arc::<ModelRegister>::clone(&register)),
                id,
            }
        })
        .collect();
    let mut has_lost = false;
    for _ in 0..60 {
        let node = rng.below(3);
        match rng.below(10) {
            0..=3 => nodes[node].random_change(&mut rng),
            4..=7 => nodes[node].round().await,
            8 => {
                let mood = [
                    RegisterFault::Gone,
                    RegisterFault::Mute,
                    RegisterFault::Well,
                ][rng.below(3)];
                register.be(mood);
            }
            _ => {
                register.be(RegisterFault::Well);
                let version = register.entries_now(None).unwrap().cursor.version;
                if rng.below(3) == 0 && version > 1 {
                    has_lost = true;
                    register.lose_after(version - 1);
                }
            }
        }
    }
    register.be(RegisterFault::Well);
    for _ in 0..final_rounds {
        for node in &mut nodes {
            node.round().await;
        }
    }
    (
        nodes.iter().map(|node| state_text(&node.service)).collect(),
        has_lost,
    )
}

#[tokio::test]
async fn all_nodes_converge_to_the_same_state() {
    let (mut losses, mut differing) = (0, HashSet::new());
    for seed in 0..150 {
        let (states, has_lost) = random_history(seed, 3).await;
        losses += u64::from(has_lost);
        assert!(
            states.iter().all(|one| *one == states[0]),
            "seed {seed}: {states:#?}"
        );
        differing.insert(states[0].clone());
    }
    assert!(losses > 20, "{losses} histories with losses");
    assert!(differing.len() > 10, "not all final states are empty");
}

#[tokio::test]
async fn control_without_final_rounds_nodes_differ() {
    let mut differ = 0;
    for seed in 0..50 {
        let (states, _) = random_history(seed, 0).await;
        differ += u64::from(states.iter().any(|one| *one != states[0]));
    }
    assert!(differ > 10, "{differ} of 50 histories differ");
}
