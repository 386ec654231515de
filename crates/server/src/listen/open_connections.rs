//! The open connections of a listener, and which of them gives way when a new one has no room.
//!
//! Slow connections that never complete a request once filled the listener and kept everybody else out. A connection
//! without an answered request now gives way to a new one, the oldest first. Clients that send their request as soon as
//! they are connected lose nothing. Must not know: any protocol, sockets.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::task::{AbortHandle, Id};

use super::client_network::ClientNetwork;

/// How far a connection has come. Protocols mark it, the accept loop reads it.
#[derive(Clone, Debug, Default)]
pub struct ConnectionProgress(Arc<AtomicBool>);

impl ConnectionProgress {
    /// Marks the connection as established: it keeps its place until it ends. A protocol marks it at the first request that
    /// it answers, or at the first one with valid credentials where it requires credentials.
    pub fn mark_established(&self) {
        let Self(is_established) = self;
        // Most requests find it set, and a load leaves the cache line shared.
        if !is_established.load(Ordering::Relaxed) {
            is_established.store(true, Ordering::Relaxed);
        }
    }

    fn is_established(&self) -> bool {
        let Self(is_established) = self;
        is_established.load(Ordering::Relaxed)
    }
}

/// The open connections of one listener.
#[derive(Debug)]
pub(super) struct OpenConnections {
    max: usize,
    max_per_address: usize,
    accepted: u64,
    open: HashMap<Id, OpenConnection>,
    per_address: HashMap<ClientNetwork, usize>,
    /// Connections that were not established when they were last looked at, the oldest first, of all clients and of each.
    unestablished: BTreeMap<u64, Id>,
    unestablished_by_address: BTreeMap<(ClientNetwork, u64), Id>,
}

#[derive(Debug)]
struct OpenConnection {
    number: u64,
    /// A Unix socket has none.
    address: Option<ClientNetwork>,
    progress: ConnectionProgress,
    task: AbortHandle,
}

/// Whether a new connection has room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RoomForConnection {
    /// There is room.
    Free,
    /// The oldest connection that was not established was closed.
    Evicted,
    /// All connections that could give way are established.
    Full,
}

impl OpenConnections {
    /// Room for `max` connections, and for `max_per_address` of each client address.
    pub(super) fn new(max: usize, max_per_address: usize) -> Self {
        Self {
            max,
            max_per_address,
            accepted: 0,
            open: HashMap::new(),
            per_address: HashMap::new(),
            unestablished: BTreeMap::new(),
            unestablished_by_address: BTreeMap::new(),
        }
    }

    /// Makes room for a connection from this address. A client at its own limit displaces only connections of its own.
    pub(super) fn make_room(&mut self, address: Option<ClientNetwork>) -> RoomForConnection {
        let count = address.and_then(|address| self.per_address.get(&address));
        let oldest = if count.is_some_and(|count| *count >= self.max_per_address) {
            address.and_then(|address| self.oldest_of_address(address))
        } else if self.open.len() >= self.max {
            self.oldest()
        } else {
            return RoomForConnection::Free;
        };
        match oldest.and_then(|id| self.remove(id)) {
            Some(connection) => {
                connection.task.abort();
                RoomForConnection::Evicted
            }
            None => RoomForConnection::Full,
        }
    }

    /// Adds a connection.
    pub(super) fn add(
        &mut self,
        address: Option<ClientNetwork>,
        progress: ConnectionProgress,
        task: AbortHandle,
    ) {
        let (id, number) = (task.id(), self.accepted);
        self.accepted = self.accepted.saturating_add(1);
        self.unestablished.insert(number, id);
        if let Some(address) = address {
            self.unestablished_by_address.insert((address, number), id);
            let count = self.per_address.entry(address).or_default();
            *count = count.saturating_add(1);
        }
        let connection = OpenConnection {
            number,
            address,
            progress,
            task,
        };
        self.open.insert(id, connection);
    }

    /// Removes a connection whose task has ended. It does nothing if the connection has given way before.
    pub(super) fn remove_ended(&mut self, id: Id) {
        let _ended = self.remove(id);
    }

    fn remove(&mut self, id: Id) -> Option<OpenConnection> {
        let connection = self.open.remove(&id)?;
        self.forget_unestablished(connection.number, connection.address);
        if let Some(address) = connection.address
            && let Some(count) = self.per_address.get_mut(&address)
        {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.per_address.remove(&address);
            }
        }
        Some(connection)
    }

    fn forget_unestablished(&mut self, number: u64, address: Option<ClientNetwork>) {
        self.unestablished.remove(&number);
        if let Some(address) = address {
            self.unestablished_by_address.remove(&(address, number));
        }
    }

    fn oldest(&mut self) -> Option<Id> {
        self.find_unestablished(|open| open.unestablished.first_key_value().map(|(_, id)| *id))
    }

    fn oldest_of_address(&mut self, address: ClientNetwork) -> Option<Id> {
        self.find_unestablished(|open| {
            let of_address = (address, 0)..=(address, u64::MAX);
            let mut found = open.unestablished_by_address.range(of_address);
            found.next().map(|(_, id)| *id)
        })
    }

    /// The first candidate that is not established. Each established one is looked at once in its life, so that a flood of
    /// connections costs the same for a full listener as for an empty one.
    fn find_unestablished(&mut self, next: impl Fn(&Self) -> Option<Id>) -> Option<Id> {
        loop {
            let id = next(self)?;
            let connection = self.open.get(&id)?;
            if !connection.progress.is_established() {
                return Some(id);
            }
            let (number, address) = (connection.number, connection.address);
            self.forget_unestablished(number, address);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use tokio::task::JoinSet;

    use super::*;

    /// Connections as tasks that never end.
    struct Connections {
        open: OpenConnections,
        tasks: JoinSet<()>,
    }

    impl Connections {
        fn new(max: usize, max_per_address: usize) -> Self {
            let (open, tasks) = (OpenConnections::new(max, max_per_address), JoinSet::new());
            Self { open, tasks }
        }

        fn connect(&mut self, address: &str) -> (RoomForConnection, Id, ConnectionProgress) {
            let address = address.parse::<IpAddr>().ok().map(ClientNetwork::from);
            let room = self.open.make_room(address);
            let progress = ConnectionProgress::default();
            let task = self.tasks.spawn(std::future::pending());
            let id = task.id();
            if room != RoomForConnection::Full {
                self.open.add(address, progress.clone(), task);
            }
            (room, id, progress)
        }

        fn is_open(&self, id: Id) -> bool {
            self.open.open.contains_key(&id)
        }
    }

    #[tokio::test]
    async fn the_oldest_connection_without_a_request_gives_way() {
        let mut connections = Connections::new(3, usize::MAX);
        let (_, established, progress) = connections.connect("192.0.2.1");
        progress.mark_established();
        let (_, slow, _) = connections.connect("192.0.2.1");
        let (_, newer, _) = connections.connect("192.0.2.2");
        let (room, newest, _) = connections.connect("192.0.2.3");
        assert_eq!(room, RoomForConnection::Evicted);
        let are_open = [established, slow, newer, newest].map(|id| connections.is_open(id));
        assert_eq!(are_open, [true, false, true, true]);
        let ended = connections.tasks.join_next_with_id().await.unwrap();
        let ended = ended.unwrap_err();
        assert!(ended.is_cancelled() && ended.id() == slow);
        connections.open.remove_ended(slow);
        assert_eq!(connections.open.open.len(), 3, "it was removed before");
    }

    #[tokio::test]
    async fn established_connections_never_give_way() {
        let mut connections = Connections::new(2, usize::MAX);
        for _ in 0..2 {
            connections.connect("192.0.2.1").2.mark_established();
        }
        let (room, ..) = connections.connect("192.0.2.2");
        assert_eq!(room, RoomForConnection::Full);
        assert!(connections.open.unestablished.is_empty());
        assert!(connections.open.unestablished_by_address.is_empty());
    }

    /// A client of one network that opens connections without end displaces its own and nobody else's.
    #[tokio::test]
    async fn a_client_at_its_own_limit_displaces_only_its_own_connections() {
        let mut connections = Connections::new(10, 2);
        let (_, other, _) = connections.connect("192.0.2.1");
        for host in 0..1_000 {
            // One IPv6 network, a new address each time.
            let address = format!("2001:db8::{host:x}");
            assert_ne!(connections.connect(&address).0, RoomForConnection::Full);
        }
        assert!(connections.is_open(other));
        assert_eq!(connections.open.open.len(), 3);
        // Clients of a Unix socket have no address and no limit of their own.
        for _ in 0..7 {
            assert_eq!(connections.connect("unix").0, RoomForConnection::Free);
        }
    }

    /// A million connections leave nothing behind.
    #[tokio::test]
    async fn ended_connections_are_forgotten() {
        let mut connections = Connections::new(100, 10);
        for host in 0..1_000_u32 {
            let address = std::net::Ipv4Addr::from_bits(host).to_string();
            let (_, id, progress) = connections.connect(&address);
            if host % 2 == 0 {
                progress.mark_established();
            }
            connections.open.remove_ended(id);
        }
        let OpenConnections {
            open,
            per_address,
            unestablished,
            unestablished_by_address,
            ..
        } = &connections.open;
        let left = open.len() + per_address.len();
        let left = left + unestablished.len() + unestablished_by_address.len();
        assert_eq!(left, 0);
    }
}
