//! Fixed windows: the state is the window's end and its count. See `lua/window.lua`.
//!
//! Must not know: other algorithms.

use tollgate_core::concurrency::LeaseId;
use tollgate_core::fixed_window::{Calendar, Window};
use tollgate_core::limit::{Op, State};
use tollgate_core::{FixedWindow, WindowState};

use super::ScriptedAlgorithm;
use crate::script::ScriptKind;
use crate::wire::bytes::Blob;
use crate::wire::code;
use crate::wire::observed_state::{ObservedState, ReplyReader};

impl ScriptedAlgorithm for FixedWindow {
    const SCRIPT: ScriptKind = ScriptKind::Windows;

    fn encode(&self, op: Op) -> Option<Blob> {
        let (limit, saturation) = (self.limit(), self.saturation());
        let (operation, bound, asked) = match op {
            Op::Spend(cost) | Op::SpendUpTo(cost) if cost == 0 => (code::LOOK, 0, 0),
            Op::Spend(cost) if cost > limit => (code::NEVER, 0, 0),
            Op::SpendUpTo(_) if limit == 0 => (code::NEVER, 0, 0),
            Op::Spend(cost) => (code::SPEND, limit, cost),
            Op::SpendUpTo(most) => (code::UP_TO, limit, most),
            Op::ChargeAlways(cost) => (code::ALWAYS, saturation, cost),
            Op::Credit(amount) => (code::CREDIT, saturation, amount),
            Op::Settle { .. } => (code::SETTLE, saturation, 0),
            _ => return None,
        };
        let blob = Blob::new(2, operation).pair(bound).pair(asked);
        Some(match self.window() {
            Window::Epoch(length) => blob.byte(0).pair(length.as_nanos()),
            Window::FirstHit(length) => blob.byte(1).pair(length.as_nanos()),
            Window::Calendar(calendar, offset) => {
                let which = match calendar {
                    Calendar::Day => 0,
                    Calendar::Week => 1,
                    Calendar::Month => 2,
                    Calendar::Year => 3,
                    _ => return None,
                };
                let minutes =
                    u64::try_from(i32::from(offset.minutes()).saturating_add(840)).ok()?;
                blob.byte(2).split(which, minutes)
            }
            _ => return None,
        })
    }

    fn observe(&self, reader: &mut ReplyReader<'_>, _: LeaseId) -> Option<ObservedState> {
        let (end, count) = (reader.pair()?, reader.pair()?);
        Some(ObservedState::whole(State::Window(WindowState {
            end,
            count,
        })))
    }
}
