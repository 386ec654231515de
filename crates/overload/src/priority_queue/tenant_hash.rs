//! Shuffle sharding: which queues of a class a tenant may use.
//!
//! Each tenant gets a hand of queues and waits in the shortest. A tenant with very many requests fills its hand, and few
//! others have the same hand. Must not know: what a tenant is.

/// The queues of a class.
pub(super) const QUEUES: usize = 64;
/// The queues in the hand of a tenant.
const HAND: usize = 4;

/// The hand of a tenant: distinct queues.
pub(super) fn hand(tenant: u64) -> [usize; HAND] {
    let mut bits = mix(tenant);
    let mut hand = [usize::MAX; HAND];
    let mut dealt = 0;
    while let Some(place) = hand.get_mut(dealt) {
        *place = usize::try_from(bits % QUEUES as u64).unwrap_or(0);
        let queue = *place;
        if !hand.iter().take(dealt).any(|earlier| *earlier == queue) {
            dealt += 1;
        }
        bits = mix(bits);
    }
    hand
}

/// The finalizer of SplitMix64: every bit of the input changes half of the bits of the output.
const fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hand_has_distinct_queues_and_hands_differ() {
        let mut same = 0;
        for tenant in 0..10_000 {
            let mut hand = hand(tenant);
            hand.sort_unstable();
            assert!(hand.windows(2).all(|pair| pair[0] < pair[1]), "{hand:?}");
            assert!(hand.iter().all(|queue| *queue < QUEUES));
            let mut first = super::hand(0);
            first.sort_unstable();
            same += usize::from(hand == first);
        }
        assert!(same <= 3, "{same} of 10,000 tenants share one hand");
    }
}
