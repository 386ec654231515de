//! Heartbeats as text: space-separated fields in a fixed order. Later versions append fields.
//!
//! Must not know: where it is stored.

use tollgate_store::register::{
    Heartbeat, HeartbeatSeal, MAX_USAGE_TARGETS, NodeId, NodeLoad, NodeUsage, TargetUsage,
};

/// Version of the text format. A version with an incompatible format changes this field; older nodes then count its
/// nodes without reading them.
const FORMAT: &str = "1";
/// Begins the field with the signature: the sequence number and the code in hexadecimal digits. Versions that do not
/// sign ignore it.
const SEAL: &str = "seal=";
/// Begins the field with the usage: of each target its digest, capacity, critical and other requests in flight, then the
/// code in hexadecimal digits. Versions that do not know it ignore it.
const USAGE: &str = "usage=";

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
    let usage = write_usage(&heartbeat.usage);
    format!(
        "{FORMAT} {node} {fingerprint:016x} {policy:016x} {generation} {version} {load}{seal}{usage}"
    )
}

/// The field, or nothing: usage without a code counts nowhere.
fn write_usage(usage: &NodeUsage) -> String {
    let Some(mac) = usage.mac else {
        return String::new();
    };
    let target = |usage: &TargetUsage| {
        let TargetUsage {
            target,
            capacity,
            critical,
            others,
        } = usage;
        format!("{target:x}:{capacity}:{critical}:{others};")
    };
    let targets: String = usage.targets.iter().map(target).collect();
    let mac = u128::from_be_bytes(mac);
    format!(" {USAGE}{targets}{mac:032x}")
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
    let (mut seal, mut usage) = (None, None);
    for field in fields {
        seal = seal.or_else(|| field.strip_prefix(SEAL));
        usage = usage.or_else(|| field.strip_prefix(USAGE));
    }
    Some(Heartbeat {
        node,
        secret_fingerprint: fingerprint,
        policy_fingerprint: policy,
        generation,
        version,
        load,
        usage: usage.and_then(read_usage).unwrap_or_default(),
        seal: seal.and_then(read_seal),
    })
}

/// `None` if a part is invalid, or if there are too many: then the node counts without its usage.
fn read_usage(text: &str) -> Option<NodeUsage> {
    let mut targets = Vec::new();
    let mut parts = text.split(';');
    let mac = u128::from_str_radix(parts.next_back()?, 16).ok()?;
    for part in parts {
        let mut numbers = part.split(':');
        let target = u64::from_str_radix(numbers.next()?, 16).ok()?;
        let mut number = || numbers.next()?.parse().ok();
        let usage = TargetUsage {
            target,
            capacity: number()?,
            critical: number()?,
            others: number()?,
        };
        if numbers.next().is_some() || targets.len() >= MAX_USAGE_TARGETS {
            return None;
        }
        targets.push(usage);
    }
    Some(NodeUsage {
        targets,
        mac: Some(mac.to_be_bytes()),
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
            usage: NodeUsage::default(),
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
    fn usage_follows_the_seal_and_an_invalid_one_leaves_the_node() {
        let mut busy = heartbeat();
        let usage = |target, others| TargetUsage {
            target,
            capacity: 32,
            critical: 4,
            others,
        };
        busy.usage.targets = vec![usage(0xfeed, 9), usage(u64::MAX, u32::MAX)];
        let plain = write(&heartbeat());
        assert_eq!(write(&busy), plain, "without a code it is not sent");
        busy.usage.mac = Some(7_u128.to_be_bytes());
        let seal = "seal=7,0000000000000000000000000000feed";
        let text =
            "usage=feed:32:4:9;ffffffffffffffff:32:4:4294967295;00000000000000000000000000000007";
        assert_eq!(write(&busy), format!("{plain} {text}"));
        let sealed = read(&format!("{plain} {seal} {text}")).unwrap();
        assert_eq!(sealed.usage, busy.usage);
        assert_eq!(sealed.seal.unwrap().sequence, 7);
        let idle = NodeUsage {
            targets: Vec::new(),
            ..busy.usage
        };
        let text = format!("{plain} usage=00000000000000000000000000000007");
        assert_eq!(read(&text).unwrap().usage, idle);
        let many = format!("usage={}7", "1:1:1:1;".repeat(MAX_USAGE_TARGETS + 1));
        for invalid in [
            "usage=",
            "usage=1:1:1;7",
            "usage=1:1:1:1:1;7",
            "usage=1:1:1:-1;7",
            &many,
        ] {
            let text = format!("{plain} {invalid} {seal}");
            let read = read(&text).unwrap();
            assert!(
                read.usage == NodeUsage::default() && read.seal.is_some(),
                "{invalid}"
            );
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
