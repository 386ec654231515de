//! Decisions over Redis, as far as this process goes: encoding, the connection, the reply. The server is a task of the same
//! thread that replies to every script with the same bytes, so its few instructions are counted too.
//!
//! Must not know: what a script decides.

use std::future::poll_fn;
use std::num::NonZeroU16;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tollgate_core::{Nanos, Rate, TokenBucket};
use tollgate_redis::{KeyHashSecret, RedisOptions, RedisStore};
use tollgate_store::{IdentifiedLimit, LimitId, Op, QuotaCheck, StoreKey, StoreReply};

use super::CaseRun;
use crate::measure::measured_section;

/// The bucket was full, and admits.
const ADMITTED: &[u8] = b"*6\r\n:1700000000\r\n:0\r\n:1\r\n:0\r\n:0\r\n:0\r\n";
/// Longer than a counter of instructions takes, which slows everything down.
const LONG_DEADLINE: Duration = Duration::from_secs(600);

/// Decides `calls_per_read` checks of one turn, `times` times.
pub(super) fn decide(times: u64, calls_per_read: usize) -> CaseRun {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let mut server = JoinSet::new();
    let store = runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        server.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(stream));
            }
        });
        let secret = KeyHashSecret::new(*b"0123456789abcdef");
        let mut options = RedisOptions::new(format!("redis://{address}"), secret);
        (options.deadline, options.connect_deadline) = (LONG_DEADLINE, LONG_DEADLINE);
        options.connections = 1;
        let store = RedisStore::connect(options).await?;
        Ok::<_, Box<dyn std::error::Error>>(store)
    })?;
    let bucket = TokenBucket::builder(Rate::new(1_000, Nanos::DAY)).burst(1_000);
    let limit = IdentifiedLimit {
        id: LimitId(NonZeroU16::MAX),
        limit: bucket.build()?.into(),
    };
    let keys: Vec<[u8; 8]> = (0..calls_per_read as u64).map(u64::to_be_bytes).collect();
    let decide_all = || runtime.block_on(decide_together(&store, &limit, &keys));
    // The first decisions also wait for the connection's first turns.
    for _ in 0..8 {
        if decide_all() != calls_per_read {
            return Err("a decision failed".into());
        }
    }
    measured_section(times, decide_all);
    Ok(())
}

/// Decides one check for each key, in one turn. Returns how many were admitted.
async fn decide_together(store: &RedisStore, limit: &IdentifiedLimit, keys: &[[u8; 8]]) -> usize {
    let decide_one = |key: &'_ [u8; 8]| {
        let key = *key;
        Box::pin(async move {
            let Ok(key) = StoreKey::new(&key) else {
                return false;
            };
            let check = QuotaCheck {
                key,
                limit,
                op: Op::Spend(1),
            };
            let decided = store.decide(&[check], &mut [StoreReply::EMPTY]).await;
            decided.is_ok_and(|outcome| outcome.is_admitted())
        })
    };
    let mut deciding: Vec<Pin<Box<_>>> = keys.iter().map(decide_one).collect();
    let mut admitted = 0;
    poll_fn(|context| {
        deciding.retain_mut(|one| match one.as_mut().poll(context) {
            Poll::Pending => true,
            Poll::Ready(is_admitted) => {
                admitted += usize::from(is_admitted);
                false
            }
        });
        match deciding.is_empty() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
    admitted
}

/// Replies to each command of a connection.
async fn serve(mut stream: TcpStream) {
    // As redis-server does. Otherwise replies wait for the acknowledgement of those before them.
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let (mut received, mut replies) = (Vec::new(), Vec::new());
    while let Ok(1..) = stream.read_buf(&mut received).await {
        let mut rest = received.as_slice();
        replies.clear();
        while let Some(after) = reply_to_first(rest, &mut replies) {
            rest = after;
        }
        received = rest.to_vec();
        if stream.write_all(&replies).await.is_err() {
            return;
        }
    }
}

/// Replies to the first command and returns what follows it; `None` if it is not complete.
fn reply_to_first<'a>(bytes: &'a [u8], replies: &mut Vec<u8>) -> Option<&'a [u8]> {
    let (arguments, mut rest) = number_line(bytes)?;
    let (mut name, mut last): (&[u8], &[u8]) = (&[], &[]);
    for position in 0..arguments {
        let before = rest;
        let (len, after) = number_line(rest)?;
        let (argument, after) = after.split_at_checked(len)?;
        rest = after.strip_prefix(b"\r\n")?;
        // With its length, as it is echoed.
        last = before.get(..before.len() - rest.len())?;
        if position == 0 {
            name = argument;
        }
    }
    replies.extend_from_slice(match name {
        b"EVALSHA" => ADMITTED,
        b"ROLE" => b"*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n",
        b"PING" => last,
        _ => b"+OK\r\n",
    });
    Some(rest)
}

/// The number on the first line, behind the byte that says what it is.
fn number_line(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let end = bytes.iter().position(|byte| *byte == b'\r')?;
    let number = std::str::from_utf8(bytes.get(1..end)?).ok()?.parse().ok()?;
    Some((number, bytes.get(end + 2..)?))
}
