//! No spelling of a host escapes a limit or gets a key of its own.

use super::spellings::{ask, rules};
use crate::load;
use crate::model::Policy;
use crate::rules::{KeyBuffer, MeterRef, Rules, Unreadable};
use crate::source::SourceFormat;

#[test]
fn every_spelling_of_a_host_is_limited_with_the_same_key() {
    let rules = rules("");
    let of = |host: &str| ask(&rules, &[("host", host), ("path", "/")]);
    let plain = of("api.example.com");
    assert!(plain.names.contains(&"host".to_owned()));
    for host in [
        "api.example.com.",
        "API.example.com",
        "api.example.com:443",
        "Api.Example.Com.:8443",
        "api.example.com..",
    ] {
        let answer = of(host);
        assert_eq!(
            (&answer.names, &answer.keys),
            (&plain.names, &plain.keys),
            "{host}"
        );
    }
    for host in [
        "api.example.com/",
        "api.example.com\\",
        "a@api.example.com",
        "api%2eexample.com",
        "api.example.com\0",
    ] {
        assert_eq!(of(host).unreadable, Some(Unreadable::InvalidHost), "{host}");
    }
}

/// `[2001:DB8::A]` and `[2001:db8:0::a]` are one address, but were two hosts and two keys.
#[test]
fn every_spelling_of_an_ipv6_host_is_limited_with_the_same_key() {
    let text = r#"
limits:
  - { name: host, match: { host: "[2001:DB8::A]" }, key: [host], rate: 1/s }
  - { name: scan, key: [ip], distinct: host, rate: 1/s }
  - { name: per-route, rate: 1/s }
"#;
    let policy: Policy = load(text, "p.yaml", SourceFormat::Yaml).unwrap();
    let rules = Rules::compile(&policy, [7; 16]).unwrap();
    let of = |host: &str| ask(&rules, &[("host", host), ("path", "/")]);
    let plain = of("[2001:db8::a]");
    assert!(plain.names.contains(&"host".to_owned()));
    for host in [
        "[2001:DB8:0:0::A]",
        "[2001:db8::a]:8443",
        "2001:db8::a",
        "[2001:0db8:0000:0000:0000:0000:0000:000a]",
    ] {
        let answer = of(host);
        assert_eq!(
            (&answer.names, &answer.keys),
            (&plain.names, &plain.keys),
            "{host}"
        );
        let mut buffer = KeyBuffer::new();
        let meter = MeterRef { rule: 0, meter: 0 };
        rules
            .write_key_of_values(meter, &[host], &mut buffer)
            .unwrap();
        assert_eq!(
            buffer.as_bytes(),
            plain.keys[0],
            "an operator's key, {host}"
        );
    }
    // Negative control.
    assert_ne!(of("[2001:db8::b]").keys, plain.keys);
}
