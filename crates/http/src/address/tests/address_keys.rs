//! The keys of addresses: prefix lengths and formatting.

use std::net::IpAddr;

use super::ip;
use crate::{AddressKey, ClientAddressResolver, Network};

#[test]
fn a_key_has_the_configured_prefix_length() {
    let key = |address: &str, v4, v6| AddressKey::new(ip(address), v4, v6).as_str().to_owned();
    let cases = [
        ("192.0.2.7", 32, 64, "192.0.2.7"),
        ("192.0.2.7", 24, 64, "192.0.2.0/24"),
        ("192.0.2.7", 0, 64, "0.0.0.0/0"),
        ("::ffff:192.0.2.7", 32, 64, "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", 32, 64, "2001:db8:1:2::/64"),
        ("2001:db8:1:2ff:3:4:5:6", 32, 56, "2001:db8:1:200::/56"),
        ("2001:db8:1:2:3:4:5:6", 32, 128, "2001:db8:1:2:3:4:5:6"),
        (
            "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
            32,
            127,
            "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe/127",
        ),
        ("::1", 32, 0, "::/0"),
    ];
    for (address, v4, v6, expected) in cases {
        assert_eq!(key(address, v4, v6), expected);
    }
    let resolver = ClientAddressResolver::default().with_prefix_lengths(24, 48);
    assert_eq!(
        format!("{:?}", resolver.key(ip("192.0.2.7"))),
        "\"192.0.2.0/24\""
    );
    assert_eq!(
        resolver.key(ip("2001:db8:1:2::")).as_str(),
        "2001:db8:1::/48"
    );
}

#[test]
fn keys_are_formatted_as_by_the_standard_library() {
    for number in 0..=u8::MAX {
        let address = IpAddr::from([number, 255 - number, 0, number]);
        let key = AddressKey::new(address, 32, 64);
        assert_eq!(key.as_str(), address.to_string());
    }
    for bits in 0..128 {
        let key = AddressKey::new(ip("ffff::1"), 32, bits);
        assert!(key.as_str().ends_with(&format!("/{bits}")), "{key:?}");
        assert!(key.as_str().parse::<Network>().is_ok(), "{key:?}");
    }
}
