//! Heartbeats as text: space-separated fields in a fixed order. Later versions append fields.
//!
//! Must not know: where it is stored.

use tollgate_store::register::{Heartbeat, NodeId, NodeLoad};

/// Version of the text format. A version with an incompatible format changes this field; older nodes then count its
/// nodes without reading them.
const FORMAT: &str = "1";

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
    format!("{FORMAT} {node} {fingerprint:016x} {policy:016x} {generation} {version} {load}")
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
    Some(Heartbeat {
        node,
        secret_fingerprint: fingerprint,
        policy_fingerprint: policy,
        generation,
        version,
        load,
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
        }
    }

    /// If this fails, nodes of two versions cannot read each other's heartbeats.
    #[test]
    fn a_heartbeat_has_the_same_text_in_every_version() {
        let text = "1 000000000000feed ffffffffffffffff 0000000000000007 3 0.6.0 1,2,3,4";
        assert_eq!(write(&heartbeat()), text);
        assert_eq!(read(text), Some(heartbeat()));
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
