//! Usage in heartbeats that its sender did not write.
//!
//! Must not know: what usage means, how heartbeats are sent.

use tollgate_store::register::{Heartbeat, NodeUsage};

use super::message_key::{MessageKey, is_equal};
use super::rejections::{Rejection, Rejections};

/// Drops usage that the sender of an authentic heartbeat did not write, also while unsigned heartbeats are accepted: it
/// changes what this node sheds.
pub(super) fn drop_forged_usage(
    heartbeat: &mut Heartbeat,
    key: &MessageKey,
    rejections: &Rejections,
) {
    let usage = std::mem::take(&mut heartbeat.usage);
    let (Some(mac), Some(seal)) = (usage.mac, heartbeat.seal) else {
        return;
    };
    heartbeat.usage = usage;
    if !is_equal(&mac, &key.usage_mac(heartbeat, seal.sequence)) {
        heartbeat.usage = NodeUsage::default();
        let id = heartbeat.node.to_string();
        rejections.record(Rejection::Forged, "usage", &id);
    }
}
