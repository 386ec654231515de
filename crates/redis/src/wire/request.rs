//! A batch of checks as one call of a script. Must not know: connections, replies.

use tollgate_core::limit::Quota;
use tollgate_core::{Nanos, Receipt, Timestamp};
use tollgate_store::contract::MAX_CHECKS;
use tollgate_store::{Check, ErrorKind, Op, StoreError};

use super::bytes::Blob;
use super::code;
use super::quota::{Ask, blob};
use crate::name::{Digest, Named, Secret, ledger_of, marker_of};
use crate::options::Remembering;
use crate::script::Which;

/// One call of a script.
#[derive(Debug)]
pub struct Request {
    /// The script.
    pub which: Which,
    /// The keys it may touch.
    pub keys: Vec<Vec<u8>>,
    /// Its arguments.
    pub args: Vec<Vec<u8>>,
    first: Option<Digest>,
}

impl Request {
    /// The call that decides these checks. `now` is for tests that move time; without it the server's clock counts.
    ///
    /// # Errors
    /// The batch makes no sense.
    pub fn new(
        secret: Secret,
        remembering: Remembering,
        checks: &[Check<'_>],
        now: Option<Timestamp>,
    ) -> Result<Self, StoreError> {
        let named = checks
            .iter()
            .map(|check| (check, Named::of(secret, &check.key, None)));
        Self::named(remembering, named, now)
    }

    /// The same for checks whose keys have been named already.
    pub(crate) fn named<'a>(
        remembering: Remembering,
        checks: impl ExactSizeIterator<Item = (&'a Check<'a>, Named)>,
        now: Option<Timestamp>,
    ) -> Result<Self, StoreError> {
        if checks.len() > MAX_CHECKS {
            return Err(bad("too many checks in one batch"));
        }
        let mut request = Self::empty(checks.len(), now);
        for (check, named) in checks {
            request.add(remembering, check, named)?;
        }
        Ok(request)
    }

    /// The call that gives back what these checks were charged, by their receipts. However often it is made under one id,
    /// they are given back once; a server remembers the id for `memory`.
    pub(crate) fn undoing<'a>(
        remembering: Remembering,
        charged: impl ExactSizeIterator<Item = (&'a Check<'a>, Named, Receipt)>,
        id: u128,
        memory: Nanos,
    ) -> Result<Self, StoreError> {
        let mut request = Self::empty(charged.len(), None);
        for (check, named, receipt) in charged {
            // What has an id of its own is undone by that.
            let by_id = match check.op {
                Op::Acquire { id, .. } => Some(Op::Release(id)),
                Op::Reserve { id, .. } => Some(Op::CancelReserved(id)),
                _ => None,
            };
            if let Some(op) = by_id {
                request.add(remembering, &Check { op, ..*check }, named)?;
                continue;
            }
            let quota = check.ruled.limit.quota();
            let name = named.name(check.ruled.id);
            let marker = marker_of(&name, id);
            let about = settled(receipt, quota).pair(memory.as_nanos()).done();
            let part = Part {
                ask: Ask::Settle,
                as_op: Some(code::UNDO),
                flags: 0,
                about: Some(about),
            };
            request.push(part, quota, named, name, Some(marker))?;
        }
        Ok(request)
    }

    /// A call of the register's script.
    pub(crate) const fn of_register(keys: Vec<Vec<u8>>, args: Vec<Vec<u8>>) -> Self {
        Self {
            which: Which::Register,
            keys,
            args,
            first: None,
        }
    }

    /// A call of a script that wants these names and no arguments.
    pub(crate) fn of_script(which: Which, named: Named, keys: Vec<Vec<u8>>) -> Self {
        Self {
            which,
            keys,
            args: Vec::new(),
            first: Some(named.tag()),
        }
    }

    /// Whether it asks for nothing.
    pub(crate) const fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    pub(super) fn empty(checks: usize, now: Option<Timestamp>) -> Self {
        let time = now.map_or_else(Vec::new, |now| Blob::default().pair(now.as_nanos()).done());
        Self {
            which: Which::All,
            keys: Vec::with_capacity(checks),
            args: vec![time],
            first: None,
        }
    }

    /// Says whose call it is.
    pub(super) fn be_about(&mut self, tag: Digest) {
        self.first.get_or_insert(tag);
    }

    /// Which of so many connections the call belongs to: the same for the same first key.
    #[must_use]
    pub fn place(&self, places: usize) -> usize {
        self.first.map_or(0, |digest| digest.place(places))
    }

    fn add(
        &mut self,
        remembering: Remembering,
        check: &Check<'_>,
        named: Named,
    ) -> Result<(), StoreError> {
        let quota = check.ruled.limit.quota();
        let part = Part::of(check.op, quota, remembering).ok_or_else(unsupported)?;
        let name = named.name(check.ruled.id);
        let beside = part.as_op.is_some().then(|| ledger_of(&name));
        self.push(part, quota, named, name, beside)
    }

    /// One check: its own key, and the one beside it where it has one.
    fn push(
        &mut self,
        part: Part,
        quota: &Quota,
        named: Named,
        name: Vec<u8>,
        beside: Option<Vec<u8>>,
    ) -> Result<(), StoreError> {
        self.be_about(named.tag());
        if self.keys.contains(&name) {
            return Err(bad("the same key of the same limit twice in one batch"));
        }
        let mut blob = blob(quota, part.ask).ok_or_else(unsupported)?;
        let mut about = part.about;
        if let Some(operation) = blob.get_mut(1) {
            if let (Some(ledger), Some(about)) = (part.as_op, &mut about) {
                about.push(*operation);
                *operation = ledger;
            }
            *operation |= part.flags;
        }
        let which = match blob.get(1) {
            _ if part.as_op.is_some() => Which::All,
            Some(&code::SPEND) if Which::of(quota) == Which::Buckets => Which::Spend,
            _ => Which::of(quota),
        };
        self.which = match self.keys.is_empty() {
            true => which,
            false => self.which.and(which),
        };
        self.keys.push(name);
        self.args.push(blob);
        self.args.extend(about);
        self.keys.extend(beside);
        Ok(())
    }
}

/// One check, taken apart.
struct Part {
    ask: Ask,
    /// The operation on the ledger that goes first, if there is one.
    as_op: Option<u8>,
    flags: u8,
    /// The earlier charge that it is about, if it is about one.
    about: Option<Vec<u8>>,
}

impl Part {
    fn of(op: Op, quota: &Quota, remembering: Remembering) -> Option<Self> {
        let is_leases = matches!(quota, Quota::Concurrency(_));
        let plain = |ask| Self {
            ask,
            as_op: None,
            flags: 0,
            about: None,
        };
        let reserved = |ask, op, id: u128, number, cost| Self {
            ask,
            as_op: Some(op),
            flags: 0,
            about: Some(
                Blob::default()
                    .id(id)
                    .pair(number)
                    .pair(remembering.memory.as_nanos())
                    .small(remembering.most)
                    .pair(cost)
                    .done(),
            ),
        };
        Some(match op {
            Op::Spend(cost) => plain(Ask::Spend(cost)),
            Op::SpendUpTo(most) => plain(Ask::UpTo(most)),
            Op::ChargeAlways(cost) => plain(Ask::Always(cost)),
            Op::Credit(amount) => plain(Ask::Credit(amount)),
            Op::Peek(cost) => Self {
                flags: code::PEEK,
                ..plain(Ask::Spend(cost))
            },
            Op::Settle { receipt, actual } => Self {
                about: Some(settled(receipt, quota).pair(actual).done()),
                ..plain(Ask::Settle)
            },
            Op::Reserve { .. } | Op::SettleReserved { .. } | Op::CancelReserved(_) if is_leases => {
                return None;
            }
            Op::Reserve { id, cost, hold } => {
                reserved(Ask::Spend(cost), code::RESERVE, id.0, hold.as_nanos(), cost)
            }
            Op::SettleReserved { id, actual } => {
                reserved(Ask::Settle, code::SETTLE_RESERVED, id.0, actual, 0)
            }
            Op::CancelReserved(id) => reserved(Ask::Settle, code::CANCEL_RESERVED, id.0, 0, 0),
            Op::Acquire { id, weight } => plain(Ask::Acquire { id: id.0, weight }),
            Op::Renew(id) => plain(Ask::Renew(id.0)),
            Op::Release(id) => plain(Ask::Release(id.0)),
            _ => return None,
        })
    }
}

/// The charge that is to be corrected, as its receipt says.
fn settled(receipt: Receipt, quota: &Quota) -> Blob {
    let blob = Blob::default()
        .pair(receipt.cost)
        .pair(receipt.at.as_nanos());
    if matches!(quota, Quota::SlidingLog(_)) {
        // A log's mark is in microseconds.
        blob.split(receipt.mark / 1_000_000, receipt.mark % 1_000_000 * 1_000)
    } else {
        blob.pair(receipt.mark)
    }
}

fn bad(detail: &'static str) -> StoreError {
    StoreError::new(ErrorKind::BadRequest, detail)
}

fn unsupported() -> StoreError {
    bad("the limit's algorithm does not know this operation")
}
