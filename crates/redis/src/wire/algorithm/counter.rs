//! Sliding window counters: the state is the window's start and two counts. See `lua/counter.lua`.
//!
//! Must not know: other algorithms.

use tollgate_core::concurrency::LeaseId;
use tollgate_core::limit::{Op, State};
use tollgate_core::{CounterState, SlidingCounter};

use super::ScriptedAlgorithm;
use crate::script::ScriptKind;
use crate::wire::bytes::Blob;
use crate::wire::code;
use crate::wire::observed_state::{ObservedState, ReplyReader};

impl ScriptedAlgorithm for SlidingCounter {
    const SCRIPT: ScriptKind = ScriptKind::Counters;

    fn encode(&self, op: Op) -> Option<Blob> {
        let limit = self.limit();
        let (operation, asked) = match op {
            Op::Spend(cost) | Op::SpendUpTo(cost) if cost == 0 => (code::LOOK, 0),
            Op::Spend(cost) if cost > limit => (code::NEVER, 0),
            Op::SpendUpTo(_) if limit == 0 => (code::NEVER, 0),
            Op::Spend(cost) => (code::SPEND, cost),
            Op::SpendUpTo(most) => (code::UP_TO, most),
            Op::ChargeAlways(cost) => (code::ALWAYS, cost),
            Op::Credit(amount) => (code::CREDIT, amount),
            Op::Settle { .. } => (code::SETTLE, 0),
            _ => return None,
        };
        let (length, tick) = (self.window().as_nanos(), self.tick().as_nanos().max(1));
        // A tick is a power of ten; the state stores its exponent.
        let power = u8::try_from(tick.ilog10()).ok()?;
        let blob = Blob::new(3, operation)
            .count(limit)
            .small(self.saturation())
            .small(self.ceiling())
            .count(asked)
            .wide(length / tick)
            .byte(power)
            .pair(length);
        Some(blob)
    }

    fn observe(&self, reader: &mut ReplyReader<'_>, _: LeaseId) -> Option<ObservedState> {
        let counter = CounterState {
            start: reader.pair()?,
            previous: u32::try_from(reader.int()?).ok()?,
            current: u32::try_from(reader.int()?).ok()?,
        };
        Some(ObservedState::whole(State::Counter(counter)))
    }
}
