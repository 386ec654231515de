//! Rate limit calls with envoyproxy/ratelimit configuration.

use tollgate_core::Nanos;

use super::client::{Descriptor, FieldValue, RlsDescriptorResult, read, request};
use super::serve_file;
use super::{OK, OVER};

const MINUTE: u64 = 2;
const HOUR: u64 = 3;

const FILE: &str = "
domain: edge
descriptors:
  - key: remote_address
    rate_limit: { unit: minute, requests_per_unit: 2, name: per-address }
  - key: plan
    value: free
    rate_limit: { unlimited: true }
  - key: quiet
    shadow_mode: true
    rate_limit: { unit: hour, requests_per_unit: 1 }
  - key: tokens
    rate_limit: { unit: hour, requests_per_unit: 100 }
  - key: first
    quota_mode: true
    rate_limit: { unit: hour, requests_per_unit: 1 }
  - key: second
    quota_mode: true
    rate_limit: { unit: hour, requests_per_unit: 2 }
  - key: told
    metadata: { plan: gold, n: 2, deep: { list: [true, null] } }
    rate_limit: { unit: hour, requests_per_unit: 1 }
";

fn ip(address: &str) -> Descriptor {
    Descriptor::new(&[("remote_address", address)])
}

#[tokio::test]
async fn one_status_for_each_descriptor_in_order() {
    let serving = serve_file(FILE).await;
    let mut client = serving.connect().await;
    let descriptors = [
        Descriptor::new(&[("nobody", "knows")]),
        ip("10.0.0.1"),
        Descriptor::new(&[("plan", "free")]),
    ];
    let message = request("edge", &descriptors, 0);
    let response = client.should_rate_limit(&message).await;
    assert_eq!(response.overall, OK);
    // The clock is 20 seconds past a minute.
    let counted = RlsDescriptorResult {
        code: OK,
        limit: Some((2, MINUTE, "per-address".to_owned())),
        remaining: 1,
        reset: Some(40),
    };
    let free = RlsDescriptorResult {
        code: OK,
        ..RlsDescriptorResult::default()
    };
    let unlimited = RlsDescriptorResult {
        code: OK,
        remaining: u32::MAX.into(),
        ..RlsDescriptorResult::default()
    };
    assert_eq!(response.statuses, [free, counted.clone(), unlimited]);
    assert_eq!(
        response.header("ratelimit-policy"),
        Some("\"per-address\";q=2;w=60")
    );
    assert_eq!(response.header("retry-after"), None);
    client.should_rate_limit(&message).await;
    // Half a second before the end the reply still says one second.
    serving.clock.advance(Nanos::from_millis(39_500));
    let response = client.should_rate_limit(&message).await;
    assert_eq!(
        (response.overall, response.codes()),
        (OVER, vec![OK, OVER, OK])
    );
    let over = RlsDescriptorResult {
        code: OVER,
        remaining: 0,
        reset: Some(1),
        ..counted
    };
    assert_eq!(response.statuses[1], over);
    assert_eq!(
        response.header("ratelimit"),
        Some("\"per-address\";r=0;t=1")
    );
    assert_eq!(response.header("retry-after"), Some("1"));
}

#[tokio::test]
async fn hits_come_from_the_descriptor_or_the_request_and_are_at_least_one() {
    let serving = serve_file(FILE).await;
    let mut client = serving.connect().await;
    let tokens = Descriptor::new(&[("tokens", "bob")]);
    for (descriptor, by_request, remaining) in [
        (tokens.clone(), 0, 99),
        (tokens.clone(), 1, 98),
        (tokens.clone(), 8, 90),
        (tokens.clone().hits(5), 0, 85),
        (tokens.clone().hits(5), 80, 80),
        (tokens.clone().hits(0), 80, 80),
        (tokens.clone().hits(30).refund(), 0, 100),
    ] {
        let response = client
            .should_rate_limit(&request("edge", &[descriptor], by_request))
            .await;
        assert_eq!(response.overall, OK);
        assert_eq!(response.statuses[0].remaining, remaining);
    }
}

/// Costs known after the response are charged in full, and a peek shows them.
#[tokio::test]
async fn costs_known_later_are_charged_beyond_the_limit_and_refunded() {
    let serving = serve_file(FILE).await;
    let mut client = serving.connect().await;
    let tokens = Descriptor::new(&[("tokens", "bob")]);
    let look = request("edge", &[tokens.clone().hits(0)], 0);
    assert_eq!(client.should_rate_limit(&look).await.overall, OK);
    let done = request("edge", &[tokens.clone().hits(280)], 0);
    assert_eq!(client.should_rate_limit(&done).await.overall, OVER);
    assert_eq!(client.should_rate_limit(&look).await.overall, OVER);
    let back = |hits| request("edge", &[tokens.clone().hits(hits).refund()], 0);
    assert_eq!(
        client.should_rate_limit(&back(179)).await.overall,
        OK,
        "never over when giving back"
    );
    assert_eq!(
        client.should_rate_limit(&look).await.overall,
        OVER,
        "101 of 100 are counted"
    );
    client.should_rate_limit(&back(1)).await;
    assert_eq!(client.should_rate_limit(&look).await.overall, OK);
}

#[tokio::test]
async fn a_limit_in_a_descriptor_replaces_the_limit_of_the_files() {
    let serving = serve_file(FILE).await;
    let mut client = serving.connect().await;
    let own = ip("10.0.0.9").limit(1, HOUR);
    let message = request("edge", std::slice::from_ref(&own), 0);
    let response = client.should_rate_limit(&message).await;
    assert_eq!(
        response.statuses[0].limit,
        Some((1, HOUR, String::new())),
        "{response:?}"
    );
    assert_eq!(client.should_rate_limit(&message).await.overall, OVER);
    assert_eq!(
        client
            .should_rate_limit(&request("edge", &[ip("10.0.0.9")], 0))
            .await
            .overall,
        OK
    );
    for unit in [0, 8, 1 << 40] {
        let (code, message) = client
            .expect_error(&request("edge", &[ip("a").limit(1, unit)], 0))
            .await;
        assert_eq!(code, 3);
        assert!(message.starts_with("limit.unit: "), "{message}");
    }
}

#[tokio::test]
async fn shadow_mode_quota_mode_and_metadata_follow_the_files() {
    let serving = serve_file(FILE).await;
    let mut client = serving.connect().await;
    let quiet = request("edge", &[Descriptor::new(&[("quiet", "a")])], 0);
    for _ in 0..3 {
        let response = client.should_rate_limit(&quiet).await;
        assert_eq!((response.overall, response.codes()), (OK, vec![OK]));
    }
    // Quota-mode limits deny only all together.
    let both = [
        Descriptor::new(&[("first", "a")]),
        Descriptor::new(&[("second", "a")]),
    ];
    let both = request("edge", &both, 0);
    let overall = [
        client.should_rate_limit(&both).await,
        client.should_rate_limit(&both).await,
        client.should_rate_limit(&both).await,
    ];
    assert_eq!(overall.each_ref().map(|it| it.overall), [OK, OK, OVER]);
    assert_eq!(overall[1].codes(), [OVER, OK]);
    let told = request("edge", &[Descriptor::new(&[("told", "a")])], 0);
    let metadata = client.should_rate_limit(&told).await.metadata.unwrap();
    let names: Vec<String> = read(metadata)
        .into_iter()
        .map(|field| match field {
            (1, FieldValue::Bytes(pair)) => match &read(pair)[0] {
                (1, FieldValue::Bytes(name)) => String::from_utf8(name.to_vec()).unwrap(),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(names, ["domain", "descriptors", "metadata"]);
    assert_eq!(
        client.should_rate_limit(&told).await.metadata,
        None,
        "it was denied"
    );
}

#[tokio::test]
async fn unknown_descriptors_are_admitted_and_invalid_requests_refused() {
    let serving = serve_file(FILE).await;
    let mut client = serving.connect().await;
    let unknown = client
        .should_rate_limit(&request("elsewhere", &[ip("a")], 0))
        .await;
    assert_eq!((unknown.overall, unknown.codes()), (OK, vec![OK]));
    assert_eq!(unknown.statuses[0].limit, None);
    assert!(unknown.headers.is_empty());
    let many = vec![ip("a"); 33];
    let deep = [Descriptor::new(&[("a", "b"); 17])];
    let long_key = "k".repeat(1_025);
    let long_value = "v".repeat(16_385);
    let cases = [
        (request("", &[ip("a")], 0), "domain: must not be empty"),
        (request("edge", &[], 0), "descriptors: must not be empty"),
        (Vec::new(), "domain: must not be empty"),
        (request("edge", &many, 0), "descriptors: 33 are too many"),
        (request("edge", &deep, 0), "entries: 17 are too many"),
        (
            request("edge", &[Descriptor::new(&[(&long_key, "v")])], 0),
            "bytes of a key: 1025 are too many",
        ),
        (
            request("edge", &[Descriptor::new(&[("k", &long_value)])], 0),
            "bytes of a value: 16385 are too many",
        ),
        (vec![0x0a, 0x02, 0xff, 0xfe], "domain: it is not UTF-8"),
        (
            vec![0x0a, 0x7f],
            "the message ends in the middle of a field",
        ),
        (
            vec![0xff; 64],
            "the message has a number of more than ten bytes",
        ),
        (vec![0x0f], "the message has a field of no known type"),
    ];
    for (message, reason) in cases {
        let (code, message) = client.expect_error(&message).await;
        assert_eq!(code, 3, "{message}");
        assert!(message.starts_with(reason), "{message}");
    }
}
