//! Envoy's files over a store that is away.

use tollgate_policy::envoy::{self, Code, Descriptor, Entry, Request};

use super::*;
use crate::TieredDecider;
use tollgate_engine::Numbering;
use tollgate_engine::envoy::EnvoyEngine;

/// How many of `asked` requests are admitted under a limit of so many an hour on one of so many nodes, without a store.
fn admitted(requests: u32, nodes: u32, asked: usize) -> usize {
    let text = format!(
        "domain: edge
descriptors:
  - key: user
    rate_limit: {{ unit: hour, requests_per_unit: {requests} }}
"
    );
    let clock = Arc::new(ManualClock::at(crate::testing::START));
    let remote = Elsewhere::new(&clock, 1);
    remote.fail(Fault::Gone);
    let store = Memory::with_clock(1_000, clock).unwrap();
    let fleet = Fleet::new(remote, store.now());
    fleet.set_nodes(nodes);
    let policy = envoy::load(&[("edge.yaml", &text)]).unwrap();
    let engine = EnvoyEngine::new(policy, [7; 16], store, &Numbering::default()).unwrap();
    let entries = [Entry::new("user", "alice")];
    let descriptors = [Descriptor::new(&entries)];
    let request = Request::new("edge", &descriptors);
    let ask = |_: &usize| {
        let version = engine.current();
        let plan = engine.plan(&version, &request).unwrap();
        let mut decision = engine.decision(&version, &plan);
        let decider = TieredDecider::new(&fleet, engine.store());
        at_once(decider.run(&mut decision)).unwrap();
        let reply = decision.finish(engine.store().now()).unwrap();
        reply.overall == Code::Ok
    };
    (0..asked).filter(ask).count()
}

/// Found in review: a counter's last unit is one too many, so a share of one unit admitted nobody at all.
#[test]
fn a_share_of_envoys_limit_admits_what_it_says_and_at_least_one() {
    assert_eq!(admitted(100, 1, 1_000), 50);
    assert_eq!(admitted(100, 5, 1_000), 10);
    assert_eq!(admitted(10, 6, 1_000), 1);
    assert_eq!(admitted(1, 50, 1_000), 1);
    assert_eq!(admitted(0, 1, 1_000), 0, "nothing stands in for nothing");
}
