//! Decisions by Envoy's files on the memory store and with a fleet.
//!
//! Must not know: protobuf, gRPC.

mod decisions;
mod fleet;
mod reference;
mod replaced_files;

use std::sync::Arc;

use tollgate_core::Timestamp;
use tollgate_engine::LimitIdAllocator;
use tollgate_store::{ManualClock, MemoryStore};

use super::{EnvoyEngine, EnvoyVerdict};
use crate::config::{self, Descriptor, DescriptorEntry, EnvoyPolicy, RlsCode, RlsRequest};

const START: Timestamp = Timestamp::from_secs(1_700_000_000);

const FILE: &str = "
domain: edge
descriptors:
  - key: ip
    rate_limit: { unit: second, requests_per_unit: 3 }
  - key: ip
    value: 10.0.0.1
    rate_limit: { unlimited: true }
  - key: user
    rate_limit: { unit: minute, requests_per_unit: 5, name: per-user }
    descriptors:
      - key: path
        value: /a*
        share_threshold: true
        rate_limit: { unit: minute, requests_per_unit: 2, replaces: [{ name: per-user }] }
      - key: path
        value: shadow
        shadow_mode: true
        rate_limit: { unit: hour, requests_per_unit: 1 }
";

type Store = Arc<MemoryStore<Arc<ManualClock>>>;

fn load(text: &str) -> EnvoyPolicy {
    config::load(&[("edge.yaml", text)]).unwrap_or_else(|refused| panic!("{refused}"))
}

fn engine_of(text: &str) -> (EnvoyEngine<Store>, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::at(START));
    let store = Arc::new(MemoryStore::with_clock(10_000, Arc::clone(&clock)).unwrap());
    let engine =
        EnvoyEngine::new(load(text), [7; 16], store, &LimitIdAllocator::default()).unwrap();
    (engine, clock)
}

fn code(engine: &EnvoyEngine<Store>, entries: &[(&str, &str)]) -> (RlsCode, u32) {
    let entries: Vec<DescriptorEntry<'_>> = entries
        .iter()
        .map(|(key, value)| DescriptorEntry::new(key, value))
        .collect();
    let descriptors = [Descriptor::new(&entries)];
    let request = RlsRequest::new("edge", &descriptors);
    let inspect = |verdict: &EnvoyVerdict<'_>| {
        (
            verdict.reply.overall,
            verdict.reply.statuses()[0].limit_remaining,
        )
    };
    engine.decide(&request, inspect).unwrap()
}
