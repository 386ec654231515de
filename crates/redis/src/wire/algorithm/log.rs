//! Sliding window logs. A log may be long, so the reply holds only the values that a decision depends on. Core decides
//! on an equivalent log of two entries: the blocks that expire until the cost fits, and all others. See `lua/log.lua`.
//!
//! Must not know: other algorithms.

use tollgate_core::SlidingLog;
use tollgate_core::concurrency::LeaseId;
use tollgate_core::limit::{Op, State};
use tollgate_core::sliding_log::{Log, LogEntry};

use super::ScriptedAlgorithm;
use crate::script::ScriptKind;
use crate::wire::bytes::Blob;
use crate::wire::code;
use crate::wire::observed_state::{ObservedState, ReplyReader};

impl ScriptedAlgorithm for SlidingLog {
    const SCRIPT: ScriptKind = ScriptKind::Logs;
    const MARK_NANOS: u64 = 1_000;

    fn encode(&self, op: Op) -> Option<Blob> {
        let (limit, block) = (self.limit_blocks(), self.block().max(1));
        let (operation, asked) = match op {
            Op::Spend(cost) => match cost.div_ceil(block) {
                0 => (code::LOOK, 0),
                blocks if blocks > limit => (code::NEVER, 0),
                blocks => (code::SPEND, blocks),
            },
            Op::SpendUpTo(0) => (code::LOOK, 0),
            Op::SpendUpTo(_) if limit == 0 => (code::NEVER, 0),
            Op::SpendUpTo(most) => (code::UP_TO, most.div_ceil(block)),
            Op::ChargeAlways(cost) => (code::ALWAYS, cost.div_ceil(block)),
            Op::Credit(amount) => (code::CREDIT, amount / block),
            Op::Settle { .. } => (code::SETTLE, 0),
            _ => return None,
        };
        let blob = Blob::new(4, operation)
            .count(limit)
            .count(self.saturation_blocks())
            .count(asked)
            .pair(self.window().as_nanos())
            .pair(self.retention().as_nanos())
            .pair(block);
        Some(blob)
    }

    fn observe(&self, reader: &mut ReplyReader<'_>, _: LeaseId) -> Option<ObservedState> {
        let (used, gone) = (reader.count()?, reader.count()?);
        let (leaves, newest) = (reader.micros()?, reader.micros()?);
        let (used_after, newest_after) = (reader.count()?, reader.micros()?);
        reader.int()?;
        let rest = used.checked_sub(gone)?;
        if rest > 0 && leaves > newest {
            return None;
        }
        let log = |entries: [(u64, u64); 2]| {
            let entries = entries.into_iter().filter(|(_, blocks)| *blocks > 0);
            State::Log(Log::from_iter(
                entries.map(|(at, blocks)| LogEntry { at, blocks }),
            ))
        };
        Some(ObservedState {
            before: log([(leaves, gone), (newest, rest)]),
            unchanged: None,
            changed: Some(log([(newest_after, used_after), (0, 0)])),
            is_held: false,
        })
    }
}
