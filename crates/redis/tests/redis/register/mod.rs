//! The register of a fleet on real servers: its nodes, its entries, and their expiry.

mod bounds;
mod data_loss;
mod entries;
mod model;
mod nodes;

use tollgate_core::Nanos;
use tollgate_redis::{KeyHashSecret, RedisOptions, RedisRegister, RedisStore};
use tollgate_store::register::{
    FleetName, Heartbeat, MemberList, NodeId, NodeLoad, NodeUsage, PutMode, RegisterEntry,
    RegisterPut, RegisterSnapshot,
};
use tollgate_testkit::redis::RedisServer;

use crate::server_time::{LONG_TIMEOUT, connection};

/// Long enough that no node expires on a busy machine.
const LIFE: Nanos = Nanos::from_secs(30);

async fn register_with(url: String, secret: [u8; 16]) -> RedisRegister {
    let mut options = RedisOptions::new(url, KeyHashSecret::new(secret));
    options.connect_deadline = LONG_TIMEOUT;
    let store = RedisStore::connect(options).await.unwrap();
    RedisRegister::new(&store, &FleetName::default()).with_deadline(LONG_TIMEOUT)
}

async fn register(url: String) -> RedisRegister {
    register_with(url, *b"tests of a fleet").await
}

fn heartbeat(node: u64) -> Heartbeat {
    Heartbeat {
        node: NodeId(node),
        secret_fingerprint: 1,
        policy_fingerprint: 2,
        generation: 3,
        version: "0.6.0".into(),
        load: NodeLoad::from_numbers([node, 10]),
        usage: NodeUsage::default(),
        seal: None,
    }
}

fn set(name: &str, body: &str) -> RegisterPut {
    RegisterPut {
        name: name.into(),
        body: body.as_bytes().into(),
        mode: PutMode::Set,
        expires_in: None,
    }
}

fn remove(name: &str) -> RegisterPut {
    RegisterPut {
        mode: PutMode::Remove,
        ..set(name, "why")
    }
}

fn nodes(members: &MemberList) -> Vec<u64> {
    members
        .nodes
        .iter()
        .map(|node| node.heartbeat.node.0)
        .collect()
}

/// Entries in short form: `name=body`, or `name-` for a tombstone.
fn summary(snapshot: &RegisterSnapshot) -> Vec<String> {
    let summarize = |entry: &RegisterEntry| {
        let body = String::from_utf8_lossy(&entry.body);
        match entry.is_tombstone {
            true => format!("{}-", entry.name),
            false => format!("{}={body}", entry.name),
        }
    };
    snapshot.entries.iter().map(summarize).collect()
}

fn time_to_live(server: &RedisServer) -> Vec<(String, i64)> {
    let mut connection = connection(server);
    let names: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut connection).unwrap();
    let ttl = |name: String| {
        let ttl = redis::cmd("PTTL").arg(&name).query(&mut connection);
        (name, ttl.unwrap())
    };
    names.into_iter().map(ttl).collect()
}
