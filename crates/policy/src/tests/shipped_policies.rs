//! What the shipped policies do with requests. Only for tests.
//!
//! Must not know: stores; engine tests check the number of admitted requests.

use std::net::IpAddr;
use std::path::Path;

use crate::attributes::{Attribute, Attributes};
use crate::load_path;
use crate::rules::{KeyBuffer, KeyOutcome, MatchedRules, MeterRef, Rules};

/// A request as a list of attributes.
struct Request(Vec<(Attribute, String)>);

impl Request {
    fn new(attributes: &[(&str, &str)]) -> Self {
        let known = attributes
            .iter()
            .map(|(name, value)| (Attribute::parse(name).unwrap(), (*value).to_owned()));
        Self(known.collect())
    }
}

impl Attributes for Request {
    fn ip(&self) -> Option<IpAddr> {
        self.0
            .iter()
            .find(|(name, _)| *name == Attribute::Ip)
            .and_then(|(_, value)| value.parse().ok())
    }

    fn get(&self, attribute: &Attribute) -> Option<&[u8]> {
        self.0
            .iter()
            .find(|(name, _)| name == attribute)
            .map(|(_, value)| value.as_bytes())
    }
}

fn rules(name: &str) -> Rules {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../policies/{name}.yaml"));
    let policy = load_path(&path).unwrap_or_else(|diagnostics| panic!("{diagnostics}"));
    Rules::compile(&policy, [7; 16]).unwrap()
}

/// The names of the limits that match a request and have a key for it.
fn limits(rules: &Rules, attributes: &[(&str, &str)]) -> Vec<String> {
    let request = Request::new(attributes);
    let mut matched = MatchedRules::new();
    rules.match_rules(&request, &mut matched);
    let mut key = KeyBuffer::new();
    matched
        .rules()
        .iter()
        .filter(|rule| {
            let meter = MeterRef {
                rule: **rule,
                meter: 0,
            };
            rules.write_key(meter, &request, &matched, &mut key) == KeyOutcome::Complete
        })
        .map(|rule| rules.rules()[*rule].name.to_string())
        .collect()
}

#[test]
fn an_address_is_limited_only_without_authentication() {
    let rules = rules("absence");
    let anonymous = [("ip", "192.0.2.7"), ("path", "/"), ("method", "GET")];
    assert_eq!(limits(&rules, &anonymous), ["anonymous"]);
    let user = [anonymous[0], ("header.authorization", "Bearer a")];
    assert_eq!(limits(&rules, &user), ["per-user"]);
    let key = [anonymous[0], ("header.x-api-key", "k")];
    assert_eq!(limits(&rules, &key), ["per-key"]);
    let both = [user[0], user[1], key[1]];
    assert_eq!(limits(&rules, &both), ["per-user"]);
}

#[test]
fn the_five_limits_are_layered_and_each_needs_its_key() {
    let rules = rules("layered");
    let address = ("ip", "192.0.2.7");
    let stranger = [address, ("method", "GET"), ("path", "/")];
    assert_eq!(limits(&rules, &stranger), ["everyone", "per-address"]);
    let login = [address, ("method", "POST"), ("path", "/login/")];
    assert_eq!(limits(&rules, &login), ["everyone", "per-address", "login"]);
    let member = [
        address,
        ("method", "GET"),
        ("path", "/v1//search?q=1"),
        ("header.x-api-key", "k"),
        ("claim.sub", "ada"),
        ("claim.org", "acme"),
    ];
    assert_eq!(
        limits(&rules, &member),
        [
            "everyone",
            "per-address",
            "per-key",
            "per-user",
            "per-user-and-route",
            "per-tenant"
        ]
    );
}

#[test]
fn only_the_narrowest_of_the_account_the_client_and_the_method_applies() {
    let rules = rules("aws");
    let key = ("header.x-api-key", "k");
    let order = [("method", "POST"), ("path", "/orders"), key];
    assert_eq!(limits(&rules, &order), ["client-and-method"]);
    assert_eq!(limits(&rules, &order[..2]), ["method"]);
    let read = [("method", "GET"), ("path", "/orders"), key];
    assert_eq!(limits(&rules, &read), ["client"]);
    assert_eq!(limits(&rules, &read[..2]), ["account"]);
}

#[test]
fn routes_that_share_a_bucket_share_its_opaque_id() {
    let rules = rules("discord");
    let bucket = |name: &str| {
        let rule = rules.rules().iter().find(|rule| &*rule.name == name);
        rule.unwrap().bucket.clone()
    };
    assert!(bucket("send-message").is_some());
    assert_eq!(bucket("send-message"), bucket("edit-message"));
    assert_eq!(bucket("global-bot"), None);
    let send = [
        ("method", "POST"),
        ("path", "/channels/1/messages"),
        ("header.authorization", "Bot a"),
        ("ip", "192.0.2.7"),
    ];
    assert_eq!(
        limits(&rules, &send),
        ["send-message", "global-bot", "invalid-requests"]
    );
}

#[test]
fn writing_costs_five_points_and_reading_one() {
    let rules = rules("github");
    let secondary = rules
        .rules()
        .iter()
        .position(|rule| &*rule.name == "secondary")
        .unwrap();
    for (method, points) in [("GET", 1), ("DELETE", 5)] {
        let request = Request::new(&[("method", method), ("header.authorization", "a")]);
        let mut matched = MatchedRules::new();
        rules.match_rules(&request, &mut matched);
        assert_eq!(
            rules.cost(secondary, &request, &matched),
            points,
            "{method}"
        );
    }
}

#[test]
fn critical_requests_keep_their_reserve() {
    let rules = rules("stripe");
    let key = ("header.authorization", "Bearer sk_live_1");
    let charge = [("method", "POST"), ("path", "/v1/charges"), key];
    assert_eq!(limits(&rules, &charge), ["request-rate", "in-flight"]);
    let list = [("method", "GET"), ("path", "/v1/customers"), key];
    assert_eq!(
        limits(&rules, &list),
        ["request-rate", "in-flight", "not-critical"]
    );
}
