//! Heartbeats as text: space-separated fields in a fixed order. Later versions append fields.
//!
//! Must not know: where it is stored.

use tollgate_store::register::{Heartbeat, HeartbeatSeal, NodeId, NodeLoad};

/// Version of the text format. A version with an incompatible format changes this field; older nodes then count its
/// nodes without reading them.
const FORMAT: &str = "1";
/// Begins the field with the signature: the sequence number and the code in hexadecimal digits. Versions that do not
/// sign ignore it.
const SEAL: &str = "seal=";

pub(super) fn write(heartbeat: &Heartbeat) -> String {
    let load = heartbeat.load.numbers().map(|n| n.to_string()).join(",");
    let Heartbeat {
        node,
        secret_fingerprint: fingerprint,
        policy_fingerprint: policy,
        generation,
        version,
        ..
    } = heartbeat;
    let version = Heartbeat::sanitize_version(version);
    let seal = heartbeat.seal.map(|HeartbeatSeal { sequence, mac }| {
        let mac = u128::from_be_bytes(mac);
        format!(" {SEAL}{sequence},{mac:032x}")
    });
    let seal = seal.unwrap_or_default();
    format!("{FORMAT} {node} {fingerprint:016x} {policy:016x} {generation} {version} {load}{seal}")
}

pub(super) fn read(text: &str) -> Option<Heartbeat> {
    let mut fields = text.split(' ');
    if fields.next()? != FORMAT {
        return None;
    }
    let mut digits = || u64::from_str_radix(fields.next()?, 16).ok();
    let (node, fingerprint, policy) = (NodeId(digits()?), digits()?, digits()?);
    let generation = fields.next()?.parse().ok()?;
    let version = Heartbeat::sanitize_version(fields.next()?);
    let numbers = fields.next()?.split(',').map(str::parse);
    let numbers: Vec<u64> = numbers.collect::<Result<_, _>>().ok()?;
    let load = NodeLoad::from_numbers(numbers);
    let seal = fields.find_map(|field| field.strip_prefix(SEAL));
    Some(Heartbeat {
        node,
        secret_fingerprint: fingerprint,
        policy_fingerprint: policy,
        generation,
        version,
        load,
        seal: seal.and_then(read_seal),
    })
}

fn read_seal(text: &str) -> Option<HeartbeatSeal> {
    let (sequence, mac) = text.split_once(',')?;
    let mac = u128::from_str_radix(mac, 16).ok()?;
    Some(HeartbeatSeal {
        sequence: sequence.parse().ok()?,
        mac: mac.to_be_bytes(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heartbeat() -> Heartbeat {
        Heartbeat {
            node: NodeId(0xfeed),
            secret_fingerprint: u64::MAX,
            policy_fingerprint: 7,
            generation: 3,
            version: "0.6.0".into(),
            load: NodeLoad::from_numbers([1, 2, 3, 4]),
            seal: None,
        }
    }

    /// If this fails, nodes of two versions cannot read each other's heartbeats.
    #[test]
    fn a_heartbeat_has_the_same_text_in_every_version() {
        let text = "1 000000000000feed ffffffffffffffff 0000000000000007 3 0.6.0 1,2,3,4";
        assert_eq!(write(&heartbeat()), text);
        assert_eq!(read(text), Some(heartbeat()));
        let mut signed = heartbeat();
        let mac = 0xfeed_u128.to_be_bytes();
        signed.seal = Some(HeartbeatSeal { sequence: 7, mac });
        let text = format!("{text} seal=7,0000000000000000000000000000feed");
        assert_eq!(write(&signed), text);
        assert_eq!(read(&text), Some(signed));
        for unreadable in ["seal=7", "seal=-7,feed", "seal=7,xyz", "seal=,"] {
            let text = format!("{} {unreadable}", write(&heartbeat()));
            assert_eq!(read(&text), Some(heartbeat()), "{unreadable}");
        }
    }

    #[test]
    fn later_versions_may_append_fields_and_earlier_ones_have_fewer() {
        let later = "1 feed ffffffffffffffff 7 3 0.6.0 1,2,3,4,99 zone=eu";
        assert_eq!(read(later), Some(heartbeat()));
        let earlier = "1 feed ffffffffffffffff 7 3 0.6.0 1";
        let of_earlier = read(earlier).unwrap();
        assert_eq!(of_earlier.load, NodeLoad::from_numbers([1]));
    }

    #[test]
    fn an_invalid_heartbeat_is_not_parsed() {
        for wrong in [
            "",
            "1",
            "2 feed 1 7 3 0.6.0 1",
            "1 feed",
            "1 xyz 1 7 3 v 1",
            "1 feed 1 7 -3 v 1",
            "1 feed 1 7 3 v 1,x",
            "1 feed 10000000000000000 7 3 v 1",
        ] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
