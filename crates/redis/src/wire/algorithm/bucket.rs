//! Token, leaky and custom buckets: the state is one instant. See `lua/bucket.lua` and `lua/custom_bucket.lua`, and `lua/spend.lua`
//! for plain spending.
//!
//! Must not know: other algorithms.

use tollgate_core::concurrency::LeaseId;
use tollgate_core::limit::{Op, State};
use tollgate_core::{CustomBucket, LeakyBucket, TokenBucket};

use super::ScriptedAlgorithm;
use crate::script::ScriptKind;
use crate::wire::bytes::Blob;
use crate::wire::code;
use crate::wire::observed_state::{ObservedState, ReplyReader};

impl ScriptedAlgorithm for TokenBucket {
    const SCRIPT: ScriptKind = ScriptKind::Buckets;

    fn encode(&self, op: Op) -> Option<Blob> {
        encode(1, self, false, op)
    }

    fn observe(&self, reader: &mut ReplyReader<'_>, _: LeaseId) -> Option<ObservedState> {
        observe(reader)
    }
}

impl ScriptedAlgorithm for LeakyBucket {
    const SCRIPT: ScriptKind = ScriptKind::Buckets;

    fn encode(&self, op: Op) -> Option<Blob> {
        encode(1, self.as_token_bucket(), self.is_queue(), op)
    }

    fn observe(&self, reader: &mut ReplyReader<'_>, _: LeaseId) -> Option<ObservedState> {
        observe(reader)
    }
}

impl ScriptedAlgorithm for CustomBucket {
    const SCRIPT: ScriptKind = ScriptKind::CustomBuckets;

    fn encode(&self, op: Op) -> Option<Blob> {
        let bucket = self.as_token_bucket();
        let blob = encode(6, bucket, false, op)?
            .pair(self.step().as_nanos())
            .pair(bucket.interval().as_nanos().max(1))
            .pair(self.initial_debt().as_nanos())
            .pair(self.tail().as_nanos());
        Some(blob)
    }

    fn observe(&self, reader: &mut ReplyReader<'_>, _: LeaseId) -> Option<ObservedState> {
        observe(reader)
    }
}

fn observe(reader: &mut ReplyReader<'_>) -> Option<ObservedState> {
    let tat = reader.pair()?;
    Some(ObservedState::whole(State::Bucket(tat)))
}

fn encode(algorithm: u8, bucket: &TokenBucket, is_queue: bool, op: Op) -> Option<Blob> {
    let (interval, block) = (bucket.interval().as_nanos().max(1), bucket.block().max(1));
    let (capacity, saturation) = (
        bucket.refill_time().as_nanos(),
        bucket.saturation().as_nanos(),
    );
    let price = |blocks: u64| blocks.saturating_mul(interval);
    let burst = capacity / interval;
    let (operation, bound, price) = match op {
        Op::Spend(cost) => match cost.div_ceil(block) {
            0 => (code::LOOK, 0, 0),
            blocks if blocks > burst => (code::NEVER, 0, 0),
            blocks => (code::SPEND, capacity, price(blocks)),
        },
        Op::SpendUpTo(0) => (code::LOOK, 0, 0),
        Op::SpendUpTo(_) if burst == 0 => (code::NEVER, 0, 0),
        Op::SpendUpTo(most) => (code::UP_TO, capacity, price(most.div_ceil(block))),
        Op::ChargeAlways(cost) => (code::ALWAYS, saturation, price(cost.div_ceil(block))),
        Op::Credit(amount) => (code::CREDIT, saturation, price(amount / block)),
        Op::Settle { .. } => (code::SETTLE, saturation, 0),
        _ => return None,
    };
    let blob = Blob::new(algorithm, operation).pair(bucket.ceiling().as_nanos());
    Some(match operation {
        code::LOOK | code::NEVER => blob,
        code::SPEND => blob.pair(bound).pair(price),
        _ => blob
            .pair(bound)
            .pair(price)
            .pair(interval)
            .pair(block)
            .byte(is_queue.into()),
    })
}
