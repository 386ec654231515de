//! Random files and requests, decided by the product and by the reference model.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use tollgate_core::Timestamp;
use tollgate_core::limit::Op;

use super::reference_model::{Mistake, ModelLimit, ModelNode, ReferenceModel};
use super::test_server::{TestDescriptor, TestRequest, TestServer, format_reply};
use crate::config::{WindowUnit, load};

/// Few keys, so that they collide, with underscores and stars in ambiguous positions.
fn key() -> impl Strategy<Value = String> {
    select(vec!["a", "b", "a_b", "c*"]).prop_map(Into::into)
}

fn node_value() -> impl Strategy<Value = String> {
    let values = vec![
        "", "", "x", "y", "x*", "*", "*y", "x*y", "b", "b_x", "x*y*z",
    ];
    select(values).prop_map(Into::into)
}

fn entry_value() -> impl Strategy<Value = String> {
    select(vec![
        "", "x", "y", "xy", "xzy", "b", "b_x", "x*", "xyz", "z",
    ])
    .prop_map(Into::into)
}

fn unit() -> impl Strategy<Value = WindowUnit> {
    select(vec![
        WindowUnit::Second,
        WindowUnit::Minute,
        WindowUnit::Hour,
    ])
}

fn limit() -> impl Strategy<Value = ModelLimit> {
    let most = prop_oneof![1 => Just(None), 6 => (0_u32..6, unit()).prop_map(Some)];
    let name = || select(vec!["", "m", "n"]).prop_map(str::to_owned);
    let replaced = select(vec!["m", "n"]).prop_map(str::to_owned);
    (most, name(), vec(replaced, 0..2)).prop_map(|(most, name, replaces)| ModelLimit {
        most,
        name,
        replaces,
    })
}

fn node(below: impl Strategy<Value = Vec<ModelNode>>) -> impl Strategy<Value = ModelNode> {
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    let limit = option::weighted(0.8, limit());
    (key(), node_value(), limit, flags, below).prop_map(
        |(key, value, limit, (shadow, quota, shared), below)| ModelNode {
            key,
            value,
            limit,
            shadow: shadow && quota,
            quota,
            shared,
            below,
        },
    )
}

fn nodes() -> impl Strategy<Value = Vec<ModelNode>> {
    let leaves = vec(node(Just(Vec::new())), 0..4);
    let middle = vec(node(leaves), 0..4);
    vec(node(middle), 1..6).prop_map(ModelNode::tidy)
}

fn descriptor() -> impl Strategy<Value = TestDescriptor> {
    let entries = vec((key(), entry_value()), 1..4);
    let own = option::weighted(0.1, (0_u32..4, unit()));
    let hits = option::weighted(0.3, 0_u64..5);
    (entries, own, hits).prop_map(|(entries, limit, hits)| TestDescriptor {
        entries,
        limit,
        hits,
        negative: false,
    })
}

fn test_request() -> impl Strategy<Value = TestRequest> {
    let domain = prop_oneof![9 => Just("d"), 1 => Just("e")];
    (domain, vec(descriptor(), 1..5), 0_u32..3).prop_map(|(domain, descriptors, hits_addend)| {
        TestRequest {
            domain: domain.to_owned(),
            hits_addend,
            descriptors,
        }
    })
}

/// Requests, each with the nanoseconds since the one before.
fn requests() -> impl Strategy<Value = Vec<(u64, TestRequest)>> {
    let pause = prop_oneof![3 => Just(0), 3 => 0..2_000_000_000_u64, 1 => 0..100_000_000_000_u64];
    vec((pause, test_request()), 1..30)
}

/// Decides by both, and returns the first difference.
fn compare(
    nodes: &[ModelNode],
    requests: &[(u64, TestRequest)],
    mistake: Mistake,
    wrongly: fn(Op) -> Op,
) -> Result<(), String> {
    let mut text = "domain: d\ndescriptors:\n".to_owned();
    nodes.iter().for_each(|node| text += &node.yaml(2));
    let policy = load(&[("random.yaml", &text)]).map_err(|refused| refused.to_string())?;
    let mut server = TestServer::new(policy);
    server.sabotage = wrongly;
    let mut model = ReferenceModel::new("d", nodes.to_vec(), mistake);
    let mut now = 1_000_000_000_000_u64;
    for (pause, test_request) in requests {
        now += pause;
        let expected = model.check(now, test_request);
        let at = Timestamp::from_nanos(now);
        let reply =
            test_request.with(|request| server.decide(at, request, |_, reply| format_reply(reply)));
        if reply != expected {
            return Err(format!(
                "at {now} {test_request:?}\n  product: {reply}\n  model: {expected}\n{text}"
            ));
        }
    }
    Ok(())
}

/// Leaves the operation unchanged.
fn unchanged(op: Op) -> Op {
    op
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn decisions_equal_those_of_the_reference_model(nodes in nodes(), requests in requests()) {
        if let Err(difference) = compare(&nodes, &requests, Mistake::None, unchanged) {
            prop_assert!(false, "{}", difference);
        }
    }
}

/// A file and requests that reveal every mistake.
fn revealing_case() -> (Vec<ModelNode>, Vec<(u64, TestRequest)>) {
    let limited = |most, name: &str, replaces: &[&str]| {
        Some(ModelLimit {
            most: Some((most, WindowUnit::Minute)),
            name: name.into(),
            replaces: replaces.iter().map(|name| (*name).to_owned()).collect(),
        })
    };
    let node = |key: &str, value: &str, limit| ModelNode {
        key: key.into(),
        value: value.into(),
        limit,
        ..ModelNode::default()
    };
    let mut shared = node("a", "x*", limited(3, "", &[]));
    shared.shared = true;
    let mut quota = node("q", "1", limited(1, "", &[]));
    quota.quota = true;
    let mut other = node("q", "2", limited(9, "", &[]));
    other.quota = true;
    let nodes = vec![
        shared,
        node("a", "*y", limited(4, "", &[])),
        node("a", "", limited(5, "m", &[])),
        node("b", "", limited(9, "", &["m"])),
        quota,
        other,
    ];
    let texts = [
        "a=xy", "a=x1", "a=x2", "a=1|b=1", "a=1", "a=2 +9", "a=2 +0", "a=2,b=2", "a=3 +4",
        "a=3 +9", "a=3", "q=1|q=2", "q=1|q=2", "a=4 +5",
    ];
    let mut requests: Vec<_> = texts
        .map(|text| (1_000_000_000, TestRequest::parse("d", text)))
        .into();
    requests.push((120_000_000_000, TestRequest::parse("d", "a=4")));
    (nodes, requests)
}

#[test]
fn the_revealing_case_is_decided_as_by_the_reference_model() {
    let (nodes, requests) = revealing_case();
    compare(&nodes, &requests, Mistake::None, unchanged).unwrap();
}

#[test]
fn control_the_comparison_detects_every_mistake() {
    let (nodes, requests) = revealing_case();
    for mistake in [
        Mistake::DeniedNotCounted,
        Mistake::LastPatternWins,
        Mistake::KeyBeforePatterns,
        Mistake::AnyDepth,
        Mistake::NothingShared,
        Mistake::NothingReplaced,
        Mistake::QuotasDenyAlone,
        Mistake::WindowFromFirstHit,
    ] {
        assert!(
            compare(&nodes, &requests, mistake, unchanged).is_err(),
            "{mistake:?}"
        );
    }
}

#[test]
fn control_the_comparison_detects_a_store_that_does_not_count_denied_requests() {
    let (nodes, requests) = revealing_case();
    let spend = |op| match op {
        Op::ChargeAlways(hits) => Op::Spend(hits),
        other => other,
    };
    assert!(compare(&nodes, &requests, Mistake::None, spend).is_err());
}

/// Pieces of files, valid and invalid.
fn piece() -> impl Strategy<Value = &'static str> {
    select(vec![
        "domain: d\n",
        "descriptors:\n",
        "  - key: a\n",
        "    key: a\n",
        "    value: b*\n",
        "    value: [1]\n",
        "    rate_limit: { unit: day }\n",
        "    rate_limit:\n",
        "      unit: hour\n",
        "      requests_per_unit: 5\n",
        "      unlimited: yes\n",
        "      replaces: [{ name: n }, {}]\n",
        "      name: n\n",
        "    share_threshold: true\n",
        "    metadata: { a: { b: [1] } }\n",
        "    descriptors:\n",
        "      - key: c\n",
        "        rate_limit: { unlimited: true }\n",
        "x",
        ": ",
    ])
}

proptest! {
    #[test]
    fn loading_never_panics_and_accepted_files_can_be_explained(pieces in vec(piece(), 0..14)) {
        let text = pieces.concat();
        match load(&[("random.yaml", &text)]) {
            Ok(policy) => prop_assert_eq!(policy.explain().count(), policy.rules().len()),
            Err(refused) => prop_assert!(!refused.to_string().is_empty()),
        }
    }
}
