//! The usage of targets in heartbeats: nodes shed by the fleet's sums, and by their own numbers without them.

use std::sync::Arc;
use std::time::Duration;

use tollgate_core::{Nanos, Timestamp};
use tollgate_overload::Completion;
use tollgate_policy::attributes::{Attribute, Attributes};
use tollgate_policy::source::SourceFormat;
use tollgate_store::ManualClock;
use tollgate_testkit::register::{ModelRegister, RegisterFault};

use super::{Member, TestService, advance};
use crate::overload::{FleetUsageStatus, OverloadEntry, OverloadPermit};
use crate::{RateLimitService, Secret};

const SECRET: &str = "the secret of this fleet";
const POLICY: &str = "
priorities:
  - { name: critical, match: { header.x-class: critical } }
  - { name: default }
overload: { reserve: enforce }
limits: none
";

struct ClassedRequest(&'static str);

impl Attributes for ClassedRequest {
    fn get(&self, attribute: &Attribute) -> Option<&[u8]> {
        matches!(attribute, Attribute::Header(_)).then_some(self.0.as_bytes())
    }
}

/// A node whose capacity was measured, with the requests that it does.
struct BusyNode {
    member: Member,
    clock: Arc<ManualClock>,
    running: Vec<OverloadPermit>,
}

impl BusyNode {
    fn start(register: &Arc<ModelRegister>) -> Self {
        let policy = tollgate_policy::load(POLICY, "policy.yaml", SourceFormat::Yaml).unwrap();
        let clock = Arc::new(ManualClock::at(Timestamp::from_secs(1_700_000_000)));
        let secret = Secret::from_shared_text(SECRET.as_bytes()).unwrap();
        let service = RateLimitService::new(&policy, 1_000, Arc::clone(&clock), secret).unwrap();
        let mut node = Self {
            member: Member::start(register, Arc::new(service), SECRET),
            clock,
            running: Vec::new(),
        };
        // The upstream has 60 workers, and 50 ms for each request.
        for (requests, latency) in [(60, 50); 10].into_iter().chain([(160, 133); 10]) {
            for _ in 0..requests {
                assert!(node.request("critical"));
            }
            node.clock.advance(Nanos::from_millis(latency));
            for permit in std::mem::take(&mut node.running) {
                permit.complete(node.service().now(), Completion::Served);
            }
        }
        node
    }

    fn service(&self) -> &Arc<TestService> {
        &self.member.service
    }

    /// Starts a request that does not end. Returns whether it was not shed.
    fn request(&mut self, class: &'static str) -> bool {
        let Ok(ticket) = self
            .service()
            .check_overload(&ClassedRequest(class), || None)
        else {
            return false;
        };
        let OverloadEntry::Started(permit) = self.service().enter_overload(&ticket.unwrap()) else {
            panic!("the concurrency limit is off");
        };
        self.running.push(permit);
        true
    }

    /// Starts requests until one is shed. Returns how many run then.
    fn fill(&mut self, class: &'static str) -> usize {
        while self.running.len() < 10_000 && self.request(class) {}
        self.running.len()
    }

    fn limit(&self) -> u64 {
        let status = self.service().overload_status().unwrap();
        status.targets[0].limit.into()
    }

    fn fleet(&self) -> Option<FleetUsageStatus> {
        self.service().overload_status().unwrap().targets[0].fleet
    }
}

async fn pass(register: &ModelRegister, nodes: &[&BusyNode], time: Duration) {
    for node in nodes {
        node.clock.advance(time.into());
    }
    advance(register, time).await;
}

#[tokio::test(start_paused = true)]
async fn usage_counts_fleet_wide_and_ages_out_with_its_node_and_with_the_register() {
    let register = Arc::new(ModelRegister::default());
    let (mut one, mut two) = (BusyNode::start(&register), BusyNode::start(&register));
    let third = BusyNode::start(&register);
    let beats = Duration::from_millis(1_200);
    pass(&register, &[&one, &two, &third], beats).await;
    let limit = one.limit();
    assert_eq!(one.fleet().unwrap().nodes, 3);
    assert_eq!(
        one.fleet().unwrap().limit,
        limit + two.limit() + third.limit()
    );

    // Idle peers lend their room: with each heartbeat the busy node may do more than its own limit.
    let alone = one.fill("other");
    assert!((alone as u64) < limit);
    pass(&register, &[&one, &two, &third], beats).await;
    let borrowed = one.fill("other");
    assert!(borrowed > alone + alone / 2, "{alone} {borrowed}");
    pass(&register, &[&one, &two, &third], beats).await;
    assert_eq!(two.fleet().unwrap().others, borrowed as u64);

    // The owner of the room still has its share at once.
    let shared = two.fill("other");
    assert!(shared >= alone - 1, "{alone} {shared}");

    // Critical requests elsewhere take room here.
    two.running.clear();
    one.running.clear();
    while two.running.len() < 2 * usize::try_from(limit).unwrap() {
        assert!(two.request("critical"), "the first class is never shed");
    }
    pass(&register, &[&one, &two, &third], beats).await;
    let beside_critical = one.fill("other");
    assert!(beside_critical < alone, "{alone} {beside_critical}");

    // A node that dies is not counted any more.
    one.running.clear();
    drop(two);
    pass(&register, &[&one, &third], Duration::from_secs(2)).await;
    assert_eq!(one.fleet().unwrap().nodes, 2);

    // Without the register the node decides alone.
    register.be(RegisterFault::Gone);
    pass(&register, &[&one, &third], Duration::from_secs(2)).await;
    assert_eq!(one.fleet(), None);
    // Half of the reserve is in use, so that it is not lent.
    one.running.clear();
    let critical = usize::try_from(limit / 8).unwrap();
    (0..critical).for_each(|_| assert!(one.request("critical")));
    assert_eq!(one.fill("other"), alone + critical);
    one.running.clear();
    register.be(RegisterFault::Well);
    pass(&register, &[&one, &third], Duration::from_secs(5)).await;
    assert!(one.fleet().is_some());
}

/// Somebody who can write to the register changes or adds usage: it would make nodes shed everything.
#[tokio::test(start_paused = true)]
async fn forged_usage_is_dropped_counted_and_leaves_the_node() {
    let register = Arc::new(ModelRegister::default());
    let (one, two) = (BusyNode::start(&register), BusyNode::start(&register));
    let beats = Duration::from_millis(1_200);
    pass(&register, &[&one, &two], beats).await;
    assert_eq!(one.fleet().unwrap().nodes, 2);
    assert_eq!(one.member.membership.rejections().totals, [0; 3]);
    let victim = two.member.membership.id();
    two.member.stop().await;
    let heartbeat = |node: &super::super::FleetNode| node.beat.clone();
    let view = one.member.membership.view();
    let authentic = view.nodes.iter().find(|node| node.beat.node == victim);
    let authentic = authentic.map(heartbeat).unwrap();
    let mut forged = authentic.clone();
    forged.usage.targets[0].critical = u32::MAX;
    let mut unsigned = authentic.clone();
    unsigned.usage.mac = None;
    for (wrong, is_counted) in [(forged, true), (unsigned, false)] {
        let before = one.member.membership.rejections().totals[0];
        register.beat_now(&wrong, Nanos::from_secs(3)).unwrap();
        pass(&register, &[&one], Duration::from_millis(700)).await;
        assert_eq!(one.fleet(), None, "the only peer has no valid usage");
        assert_eq!(one.member.visible_nodes(), 2, "the heartbeat is authentic");
        let after = one.member.membership.rejections().totals[0];
        assert_eq!(after > before, is_counted);
    }
    register.beat_now(&authentic, Nanos::from_secs(3)).unwrap();
    pass(&register, &[&one], Duration::from_millis(700)).await;
    assert_eq!(one.fleet().unwrap().nodes, 2);
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_reserves_nothing_sends_no_usage() {
    let register = Arc::new(ModelRegister::default());
    let member = Member::start_default(&register);
    advance(&register, Duration::from_secs(1)).await;
    let view = member.membership.view();
    assert!(view.nodes[0].beat.usage == Default::default());
}
