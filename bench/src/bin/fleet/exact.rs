//! `exact`: what a decision costs this process beside the bare call of the same script through the same client.
//!
//! Must not know: how costs are measured.

use std::num::NonZeroU16;
use std::sync::Arc;

use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;
use tollgate_core::{Rate, TokenBucket};
use tollgate_redis::wire::{self, ScriptKind};
use tollgate_redis::{KeyHashSecret, ReservationRetention};
use tollgate_store::{IdentifiedLimit, LimitId, Op, QuotaCheck, StoreKey};

use crate::Failure;
use crate::goals::Goals;
use crate::node::{CONNECTIONS, LONG_DEADLINE, Node, Request, SECRET};
use crate::options::Options;
use crate::redis_server::BenchRedis;
use crate::stats::{Spread, Table};
use crate::timed_runs::{LapCost, LoadShape};

/// More than any run spends, so that every state is alive and nothing is denied.
const QUOTA: &str = "    rate: 1000/s\n    burst: 100000000\n";
const GOAL: f64 = 1.3;

/// The same calls, already encoded: the client that sends them knows nothing of limits.
#[derive(Debug)]
struct BareClient {
    connections: Vec<MultiplexedConnection>,
    digest: &'static str,
    calls: Vec<EncodedCall>,
}

/// The keys and the arguments of one call.
#[derive(Debug)]
struct EncodedCall {
    keys: Vec<Vec<u8>>,
    args: Vec<Vec<u8>>,
}

impl BareClient {
    /// As many connections as a node has.
    async fn connect(url: &str, keys: u64) -> Result<Self, Failure> {
        let client = redis::Client::open(url)?;
        // As the client comes, its timeout included; but nobody waits for room to write in.
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(Some(LONG_DEADLINE))
            .set_pipeline_buffer_size(4_096);
        let mut connections = Vec::new();
        for _ in 0..CONNECTIONS {
            let connecting = client.get_multiplexed_async_connection_with_config(&config);
            connections.push(connecting.await?);
        }
        let limit = IdentifiedLimit {
            id: LimitId(NonZeroU16::MIN),
            limit: TokenBucket::builder(Rate::per_second(1_000))
                .burst(100_000_000)
                .build()?
                .into(),
        };
        let call = |number: u64| -> Result<EncodedCall, Failure> {
            let name = format!("bare-{number:010}");
            let check = QuotaCheck {
                key: StoreKey::new(name.as_bytes())?,
                limit: &limit,
                op: Op::Spend(1),
            };
            let secret = KeyHashSecret::new(SECRET);
            let request =
                wire::ScriptCall::new(secret, ReservationRetention::default(), &[check], None)?;
            Ok(EncodedCall {
                keys: request.keys.iter().map(<[u8]>::to_vec).collect(),
                args: request.args.iter().map(<[u8]>::to_vec).collect(),
            })
        };
        let script = ScriptKind::Spend.script();
        let load = redis::cmd("SCRIPT").arg("LOAD").arg(script.text).take();
        if let Some(first) = connections.first_mut() {
            load.exec_async(first).await?;
        }
        Ok(Self {
            connections,
            digest: &script.digest,
            calls: (0..keys).map(call).collect::<Result<_, _>>()?,
        })
    }

    /// One call, on the connection that is the key's, as a node's keys each have their own.
    async fn call(
        &self,
        key: u64,
        connections: &mut [MultiplexedConnection],
    ) -> Result<(), String> {
        let index = usize::try_from(key).unwrap_or(0);
        let place = index.checked_rem(connections.len()).unwrap_or(0);
        let (Some(words), Some(connection)) = (self.calls.get(index), connections.get_mut(place))
        else {
            return Err(format!("there is no call for key {key}"));
        };
        let mut call = redis::cmd("EVALSHA");
        call.arg(self.digest).arg(words.keys.len());
        for word in words.keys.iter().chain(&words.args) {
            call.arg(word.as_slice());
        }
        let reply: Vec<i64> = call
            .query_async(connection)
            .await
            .map_err(|error| error.to_string())?;
        match reply.get(2) {
            Some(1) => Ok(()),
            _ => Err(format!("the bare call was answered {reply:?}")),
        }
    }
}

/// A table for each pattern.
pub(crate) async fn measure(
    server: &mut BenchRedis,
    options: &Options,
    goals: &mut Goals,
) -> Result<Vec<Table>, Failure> {
    let mut tables = Vec::new();
    for (keys, callers) in [(1, 1), (1, 64), (options.keys, 1), (options.keys, 64)] {
        server.empty()?;
        let shape = LoadShape {
            callers,
            calls: options.calls,
            keys,
        };
        let title = format!(
            "exact, {}, {}",
            named(keys, "key"),
            named(callers, "caller")
        );
        let laps = rounds(server, options.rounds, shape).await?;
        let ratio = |part: fn(&LapCost) -> f64| {
            Spread::of(laps.iter().map(|[ours, bare]| part(ours) / part(bare)))
        };
        goals.at_most(
            &format!("{title}: CPU beside bare EVALSHA"),
            GOAL,
            Some(ratio(|cost| cost.ours)),
        );
        tables.push(table(&title, &laps));
    }
    Ok(tables)
}

fn named(count: u64, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}

/// Ours and the bare call's costs, round by round; the first round is not counted.
async fn rounds(
    server: &mut BenchRedis,
    rounds: u64,
    shape: LoadShape,
) -> Result<Vec<[LapCost; 2]>, Failure> {
    let node = Node::sharing(QUOTA, &server.url(), LONG_DEADLINE).await?;
    let bare = Arc::new(BareClient::connect(&server.url(), shape.keys).await?);
    let requests: Arc<[Request]> = (0..shape.keys).map(Request::of).collect();
    let mut laps = Vec::new();
    for round in 0..=rounds {
        let ours = async |server: &mut BenchRedis| {
            let make = |caller| ask(node.clone(), Arc::clone(&requests), shape, caller);
            shape.lap(server, make).await
        };
        let floor = async |server: &mut BenchRedis| {
            let make = |caller| call(Arc::clone(&bare), shape, caller);
            shape.lap(server, make).await
        };
        // In turn, so that neither always runs on what the other has left in the caches.
        let both = if round % 2 == 0 {
            [ours(server).await?, floor(server).await?]
        } else {
            let floor = floor(server).await?;
            [ours(server).await?, floor]
        };
        if round > 0 {
            laps.push(both);
        }
    }
    let counted = node.fleet()?.totals();
    let expected = shape.calls.saturating_mul(rounds.saturating_add(1));
    if counted.answered != expected || counted.fallback != 0 {
        return Err(format!("not every decision was the store's: {counted:?}").into());
    }
    Ok(laps)
}

async fn ask(
    node: Node,
    requests: Arc<[Request]>,
    shape: LoadShape,
    caller: u64,
) -> Result<(), String> {
    for key in shape.keys_of(caller) {
        let request = requests.get(usize::try_from(key).unwrap_or(0));
        let request = request.ok_or("there is no such request")?;
        if !node.ask(request).await.is_admitted() {
            return Err("a request was denied".to_owned());
        }
    }
    Ok(())
}

async fn call(bare: Arc<BareClient>, shape: LoadShape, caller: u64) -> Result<(), String> {
    let mut connections = bare.connections.clone();
    for key in shape.keys_of(caller) {
        bare.call(key, &mut connections).await?;
    }
    Ok(())
}

fn table(title: &str, laps: &[[LapCost; 2]]) -> Table {
    let mut table = Table::new(
        title,
        &[
            "",
            "our CPU s per million",
            "times bare",
            "server CPU s per million",
            "wall s per million",
            "calls per read",
        ],
    );
    let names = ["tollgate, exact", "bare EVALSHA"];
    for (index, name) in names.iter().enumerate() {
        let of = |part: fn(&LapCost) -> f64| {
            let costs = laps.iter().filter_map(move |lap| lap.get(index));
            Spread::of(costs.map(part))
        };
        let ratios = laps.iter().filter_map(|lap| {
            let [_, bare] = lap;
            Some(lap.get(index)?.ours / bare.ours)
        });
        table.row(vec![
            (*name).to_owned(),
            of(|cost| cost.ours).show(2),
            Spread::of(ratios).show(2),
            of(|cost| cost.server).show(2),
            of(|cost| cost.wall).show(2),
            of(|cost| cost.calls_per_read).show(1),
        ]);
    }
    table
}
