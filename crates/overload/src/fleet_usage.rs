//! The usage of a fleet: what the work behind all nodes can do at a time and does now, from numbers that peers sent a while ago.
//!
//! A node knows its own usage at once and that of its peers as of the last exchange. If every node took all the room that it
//! sees, the fleet would take it many times over. So each node takes its part of the spare room, and the parts add up to the
//! room. Must not know: how numbers are exchanged, clocks.

use tollgate_core::Timestamp;

use crate::reserved_share::ReservedShare;

/// What can be done at a time, and what is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Usage {
    /// The requests that can be done at a time.
    pub capacity: u64,
    /// The requests of the most important class in flight.
    pub critical: u64,
    /// The requests of all other classes in flight.
    pub others: u64,
}

impl Usage {
    /// The sum of both.
    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self {
            capacity: self.capacity.saturating_add(other.capacity),
            critical: self.critical.saturating_add(other.critical),
            others: self.others.saturating_add(other.others),
        }
    }
}

/// The usage of the peers at the last exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerUsage {
    /// The sum over all peers.
    pub peers: Usage,
    /// The number of peers.
    pub nodes: usize,
    /// The requests of other classes that this node reported at that time.
    pub own_others: u64,
    /// Afterwards the numbers count as unknown, and the node decides alone.
    pub expires: Timestamp,
}

impl PeerUsage {
    /// What this node may do of other classes at a time: its share of the fleet's room by capacity, and beyond that its part of
    /// what its peers leave unused. If the fleet does more than the room, nodes above their share give back in proportion.
    ///
    /// ```
    /// use tollgate_core::Timestamp;
    /// use tollgate_overload::{PeerUsage, ReservedShare, Usage};
    ///
    /// let reserve = ReservedShare::from_hundredths_of_percent(2_000);
    /// let own = Usage { capacity: 50, critical: 0, others: 40 };
    /// let peers = PeerUsage {
    ///     peers: Usage { capacity: 50, ..Usage::default() },
    ///     nodes: 1,
    ///     own_others: 40,
    ///     expires: Timestamp::from_secs(9),
    /// };
    /// // The fleet has room for 80 and does 40. Each of both nodes may take half of what is left.
    /// assert_eq!(peers.room_for_others(reserve, own), 60);
    /// ```
    #[must_use]
    pub fn room_for_others(&self, reserve: ReservedShare, own: Usage) -> u64 {
        let all = self.peers.saturating_add(own);
        let room = reserve.room_for_others(all.capacity, all.critical);
        let share = part(room, own.capacity, all.capacity);
        let reported = self.peers.others.saturating_add(self.own_others);
        let kept = match room.checked_sub(reported) {
            Some(spare) => self
                .own_others
                .saturating_add(part(spare, own.capacity, all.capacity)),
            None => part(room, self.own_others, reported),
        };
        share.max(kept)
    }
}

/// `of · numerator / denominator`, rounded down.
fn part(of: u64, numerator: u64, denominator: u64) -> u64 {
    let product = u128::from(of) * u128::from(numerator);
    let part = product.checked_div(u128::from(denominator)).unwrap_or(0);
    u64::try_from(part).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESERVE: ReservedShare = ReservedShare::from_hundredths_of_percent(2_000);
    const CAPACITY: u64 = 100;

    /// Nodes with requests that end one interval after they began, and one exchange for each interval.
    struct Fleet {
        others: Vec<u64>,
        critical: Vec<u64>,
    }

    impl Fleet {
        fn usage(&self, node: usize) -> Usage {
            Usage {
                capacity: CAPACITY,
                critical: self.critical[node],
                others: self.others[node],
            }
        }

        /// Every node gets the numbers of the last interval, then starts what it is asked for and has room for.
        fn exchange(&mut self, demand: &[u64]) {
            let nodes = 0..self.others.len();
            let room = |node: usize| {
                let others = nodes.clone().filter(|other| *other != node);
                let peers = PeerUsage {
                    peers: others
                        .map(|other| self.usage(other))
                        .fold(Usage::default(), Usage::saturating_add),
                    nodes: nodes.len() - 1,
                    own_others: self.others[node],
                    expires: Timestamp::EPOCH,
                };
                peers.room_for_others(RESERVE, self.usage(node))
            };
            let rooms: Vec<u64> = nodes.clone().map(room).collect();
            self.others = nodes.map(|node| demand[node].min(rooms[node])).collect();
        }

        fn sum(&self) -> u64 {
            self.others.iter().sum()
        }
    }

    #[test]
    fn one_busy_node_borrows_the_room_of_idle_ones_and_returns_it_at_once() {
        let mut fleet = Fleet {
            others: vec![0; 3],
            critical: vec![0; 3],
        };
        fleet.exchange(&[1_000, 0, 0]);
        assert_eq!(fleet.others, [80, 0, 0], "first its own share");
        for _ in 0..12 {
            fleet.exchange(&[1_000, 0, 0]);
        }
        assert!((236..=240).contains(&fleet.sum()), "{:?}", fleet.others);
        // The others come back: each has its share in the first interval, and the borrower shrinks.
        fleet.exchange(&[1_000, 1_000, 1_000]);
        assert!(fleet.others[1] >= 80 && fleet.others[2] >= 80);
        fleet.exchange(&[1_000, 1_000, 1_000]);
        assert!(fleet.sum() <= 320, "{:?}", fleet.others);
        for _ in 0..12 {
            fleet.exchange(&[1_000, 1_000, 1_000]);
        }
        assert!(fleet.sum() <= 245, "{:?}", fleet.others);
    }

    #[test]
    fn critical_requests_of_one_node_take_room_from_all() {
        let mut fleet = Fleet {
            others: vec![0; 3],
            critical: vec![90, 0, 0],
        };
        for _ in 0..12 {
            fleet.exchange(&[1_000; 3]);
        }
        assert_eq!(fleet.others, [70; 3], "300 - 90 for others, not 240");
    }

    #[test]
    fn with_any_demand_the_fleet_settles_at_its_room_or_at_the_demand() {
        let mut seed = 7_u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        for _ in 0..200 {
            let nodes = 1 + usize::try_from(random(8)).unwrap();
            let mut fleet = Fleet {
                others: (0..nodes).map(|_| random(300)).collect(),
                critical: (0..nodes).map(|_| random(40)).collect(),
            };
            let demand: Vec<u64> = (0..nodes).map(|_| random(300)).collect();
            for _ in 0..60 {
                fleet.exchange(&demand);
            }
            let (capacity, critical) = (CAPACITY * nodes as u64, fleet.critical.iter().sum());
            let room = RESERVE.room_for_others(capacity, critical);
            let goal = room.min(demand.iter().sum());
            // Every node rounds down, and a node that gives back may wait for one that grows to its share.
            assert!(fleet.sum() <= room + room / 20 + 8, "{fleet:?} {demand:?}");
            assert!(
                fleet.sum() + 2 * 8 + goal / 20 >= goal,
                "{fleet:?} {demand:?}"
            );
        }
    }

    #[test]
    fn a_fleet_without_capacity_has_no_room_and_nothing_overflows() {
        let peers = PeerUsage {
            peers: Usage::default(),
            nodes: 0,
            own_others: 0,
            expires: Timestamp::EPOCH,
        };
        assert_eq!(peers.room_for_others(RESERVE, Usage::default()), 0);
        let most = Usage {
            capacity: u64::MAX,
            critical: u64::MAX,
            others: u64::MAX,
        };
        let full = PeerUsage {
            peers: most,
            own_others: u64::MAX,
            ..peers
        };
        assert_eq!(full.room_for_others(RESERVE, most), 0);
    }

    impl std::fmt::Debug for Fleet {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "{:?} {:?}", self.others, self.critical)
        }
    }
}
