//! Finds the networks that contain an address: a binary search over sorted range starts, then the chain of enclosing
//! networks.
//!
//! Two networks are either nested or disjoint. So their boundaries split the address space into ranges with one
//! narrowest network each, and every other network of a range contains it. The lookup is logarithmic in the number of
//! networks. Must not know: what networks are for.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::grammar;

/// No network.
const NO_NETWORK: u32 = u32::MAX;

/// Networks with values.
#[derive(Debug)]
pub(super) struct NetworkIndex<T> {
    v4: RangeIndex<u32>,
    v6: RangeIndex<u128>,
    nested: Box<[NetworkNode<T>]>,
}

/// The value of a network, and the next enclosing network.
#[derive(Debug)]
struct NetworkNode<T> {
    value: T,
    parent: u32,
}

/// The starts of the ranges, and the narrowest network of each.
#[derive(Debug)]
struct RangeIndex<A> {
    starts: Box<[A]>,
    narrowest: Box<[u32]>,
}

impl<T> NetworkIndex<T> {
    /// Builds the index. The networks must be distinct.
    pub(super) fn new(networks: impl IntoIterator<Item = (IpNet, T)>) -> Self {
        let mut v4 = Vec::new();
        let mut v6 = Vec::new();
        let mut nested = Vec::new();
        for (id, (network, value)) in (0..NO_NETWORK).zip(networks) {
            match canonical(network) {
                IpNet::V4(v4_net) => {
                    let (start, end) = (v4_net.network(), v4_net.broadcast());
                    v4.push((start.to_bits(), end.to_bits(), id));
                }
                IpNet::V6(v6_net) => {
                    let (start, end) = (v6_net.network(), v6_net.broadcast());
                    v6.push((start.to_bits(), end.to_bits(), id));
                }
            }
            nested.push(NetworkNode {
                value,
                parent: NO_NETWORK,
            });
        }
        Self {
            v4: RangeIndex::new(v4, &mut nested, |end| end.checked_add(1)),
            v6: RangeIndex::new(v6, &mut nested, |end| end.checked_add(1)),
            nested: nested.into(),
        }
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.nested.is_empty()
    }

    /// Whether any network contains an address.
    pub(super) fn contains(&self, address: IpAddr) -> bool {
        self.narrowest(address) != NO_NETWORK
    }

    /// The values of all networks that contain an address, narrowest first.
    pub(super) fn enclosing(&self, address: IpAddr) -> impl Iterator<Item = &T> {
        let of = |id: u32| usize::try_from(id).ok().and_then(|id| self.nested.get(id));
        std::iter::successors(of(self.narrowest(address)), move |nested| of(nested.parent))
            .map(|nested| &nested.value)
    }

    fn narrowest(&self, address: IpAddr) -> u32 {
        match address.to_canonical() {
            IpAddr::V4(address) => self.v4.narrowest(address.to_bits()),
            IpAddr::V6(address) => self.v6.narrowest(address.to_bits()),
        }
    }
}

impl<A: Ord + Copy> RangeIndex<A> {
    fn new<T>(
        mut ranges: Vec<(A, A, u32)>,
        nested: &mut [NetworkNode<T>],
        after: impl Fn(A) -> Option<A>,
    ) -> Self {
        ranges.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
        let mut borders: Vec<(A, u32)> = Vec::new();
        let mut border = |start: A, id: u32| match borders.last_mut() {
            Some(last) if last.0 == start => last.1 = id,
            _ => borders.push((start, id)),
        };
        // The networks that contain the current start, widest first.
        let mut open: Vec<(A, u32)> = Vec::new();
        let close_before =
            |start: Option<A>, open: &mut Vec<(A, u32)>, border: &mut dyn FnMut(A, u32)| {
                while let Some((end, _)) =
                    open.pop_if(|(end, _)| start.is_none_or(|start| *end < start))
                {
                    if let Some(next) = after(end) {
                        border(next, open.last().map_or(NO_NETWORK, |(_, id)| *id));
                    }
                }
            };
        for (start, end, id) in ranges {
            close_before(Some(start), &mut open, &mut border);
            let wider = open.last().map_or(NO_NETWORK, |(_, id)| *id);
            if let Some(nested) = usize::try_from(id).ok().and_then(|id| nested.get_mut(id)) {
                nested.parent = wider;
            }
            border(start, id);
            open.push((end, id));
        }
        close_before(None, &mut open, &mut border);
        let (starts, narrowest): (Vec<A>, Vec<u32>) = borders.into_iter().unzip();
        Self {
            starts: starts.into(),
            narrowest: narrowest.into(),
        }
    }

    fn narrowest(&self, address: A) -> u32 {
        let after = self.starts.partition_point(|start| *start <= address);
        after
            .checked_sub(1)
            .and_then(|stretch| self.narrowest.get(stretch))
            .copied()
            .unwrap_or(NO_NETWORK)
    }
}

/// Unmaps an IPv4-mapped network and clears the host bits.
pub(super) fn canonical(network: IpNet) -> IpNet {
    grammar::unmap_ipv4(network).trunc()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn networks(list: &[&str]) -> NetworkIndex<usize> {
        let parsed = list.iter().enumerate().map(|(index, text)| {
            let network: IpNet = text.parse().unwrap();
            (network, index)
        });
        NetworkIndex::new(parsed)
    }

    fn around(networks: &NetworkIndex<usize>, address: &str) -> Vec<usize> {
        networks
            .enclosing(address.parse().unwrap())
            .copied()
            .collect()
    }

    #[test]
    fn all_enclosing_networks_are_found_narrowest_first() {
        let matched = networks(&[
            "0.0.0.0/0",
            "10.0.0.0/8",
            "10.1.0.0/16",
            "10.1.2.3/32",
            "10.2.0.0/16",
            "255.255.255.255/32",
            "2001:db8::/32",
            "::/0",
        ]);
        assert_eq!(around(&matched, "10.1.2.3"), [3, 2, 1, 0]);
        assert_eq!(around(&matched, "10.1.2.4"), [2, 1, 0]);
        assert_eq!(around(&matched, "10.1.255.255"), [2, 1, 0]);
        assert_eq!(around(&matched, "10.2.0.0"), [4, 1, 0]);
        assert_eq!(around(&matched, "10.3.0.0"), [1, 0]);
        assert_eq!(around(&matched, "11.0.0.0"), [0]);
        assert_eq!(around(&matched, "255.255.255.255"), [5, 0]);
        assert_eq!(around(&matched, "2001:db8::1"), [6, 7]);
        assert_eq!(around(&matched, "ffff::"), [7]);
        assert_eq!(around(&matched, "::ffff:10.1.2.3"), [3, 2, 1, 0]);
    }

    #[test]
    fn an_address_outside_of_all_networks_is_in_none() {
        let matched = networks(&["10.0.0.0/8", "::ffff:192.168.0.0/112"]);
        assert!(!matched.contains("9.255.255.255".parse().unwrap()));
        assert!(!matched.contains("11.0.0.0".parse().unwrap()));
        assert!(!matched.contains("::10.0.0.0".parse().unwrap()));
        assert!(matched.contains("192.168.255.1".parse().unwrap()));
        assert!(!networks(&[]).contains("1.1.1.1".parse().unwrap()));
    }
}
