//! Encodes a batch of checks as one call of a script. Must not know: connections, replies.

use tollgate_core::limit::Quota;
use tollgate_core::reservation::ReservationId;
use tollgate_core::{Nanos, Receipt, Timestamp};
use tollgate_store::contract::MAX_CHECKS;
use tollgate_store::{Op, QuotaCheck, StoreError, StoreErrorKind};

use super::algorithm;
use super::bytes::Blob;
use super::call_arguments::CallArguments;
use super::code;
use crate::key_name::{KeyHashSecret, KeyName, ledger_name, undo_marker_name};
use crate::options::ReservationRetention;
use crate::script::ScriptKind;

/// One call of a script.
#[derive(Debug)]
pub struct ScriptCall {
    /// The script.
    pub kind: ScriptKind,
    /// The keys that it accesses.
    pub keys: CallArguments,
    /// Its arguments.
    pub args: CallArguments,
}

impl ScriptCall {
    /// The call that decides these checks. `now` is for tests that move the time; `None` uses the server's clock.
    ///
    /// # Errors
    ///
    /// The batch is invalid.
    pub fn new(
        secret: KeyHashSecret,
        retention: ReservationRetention,
        checks: &[QuotaCheck<'_>],
        now: Option<Timestamp>,
    ) -> Result<Self, StoreError> {
        let named = checks
            .iter()
            .map(|check| (check, KeyName::new(secret, &check.key, None)));
        Self::for_named_checks(retention, named, now)
    }

    /// The same for checks whose key names are known.
    pub(crate) fn for_named_checks<'a>(
        retention: ReservationRetention,
        checks: impl ExactSizeIterator<Item = (&'a QuotaCheck<'a>, KeyName)>,
        now: Option<Timestamp>,
    ) -> Result<Self, StoreError> {
        if checks.len() > MAX_CHECKS {
            return Err(bad("too many checks in one batch, the maximum is 128"));
        }
        let mut request = Self::empty(checks.len(), now);
        for (check, key_name) in checks {
            request.add(retention, check, key_name)?;
        }
        Ok(request)
    }

    /// The call that refunds these charges by their receipts. However often it is sent with one id, the charges are
    /// refunded once; the server remembers the id for `memory`.
    pub(crate) fn for_undo<'a>(
        retention: ReservationRetention,
        charged: impl ExactSizeIterator<Item = (&'a QuotaCheck<'a>, KeyName, Receipt)>,
        id: u128,
        memory: Nanos,
    ) -> Result<Self, StoreError> {
        let mut request = Self::empty(charged.len(), None);
        for (check, key_name, receipt) in charged {
            // Leases and reservations are undone by their own ids.
            let own_undo = match check.op {
                Op::Acquire { id, .. } => Some(Op::Release(id)),
                Op::Reserve { id, .. } => Some(Op::CancelReserved(id)),
                _ => None,
            };
            if let Some(op) = own_undo {
                request.add(retention, &QuotaCheck { op, ..*check }, key_name)?;
                continue;
            }
            let quota = check.limit.limit.quota();
            let encoding = CheckEncoding {
                op: Op::Settle { receipt, actual: 0 },
                ledger_op: Some(code::UNDO),
                flags: 0,
                charge: Some(receipt_blob(receipt, quota).pair(memory.as_nanos())),
            };
            request.push(encoding, check, key_name, Some(SideKey::Marker(id)))?;
        }
        Ok(request)
    }

    /// A call of the register's script.
    pub(crate) fn for_register(keys: Vec<Vec<u8>>, args: Vec<Vec<u8>>) -> Self {
        Self {
            kind: ScriptKind::Register,
            keys: keys.into_iter().collect(),
            args: args.into_iter().collect(),
        }
    }

    /// A call of the script for shared quotas.
    pub(crate) fn for_shared_quota(key: &[u8], args: Vec<Vec<u8>>) -> Self {
        Self {
            kind: ScriptKind::SharedQuota,
            keys: std::iter::once(key).collect(),
            args: args.into_iter().collect(),
        }
    }

    /// A call of a script with these keys and no arguments.
    pub(crate) fn for_script(kind: ScriptKind, keys: &[Vec<u8>]) -> Self {
        Self {
            kind,
            keys: keys.iter().collect(),
            args: CallArguments::default(),
        }
    }

    /// Appends the call as it goes over the wire: `EVALSHA`, digest, number of keys, keys, arguments.
    pub(crate) fn write_command(&self, bytes: &mut Vec<u8>) {
        let arguments = self.keys.len().saturating_add(self.args.len());
        write_length(bytes, b'*', arguments.saturating_add(3));
        bytes.extend_from_slice(b"$7\r\nEVALSHA\r\n");
        write_bulk_string(bytes, self.kind.script().digest.as_bytes());
        let mut count = itoa::Buffer::new();
        write_bulk_string(bytes, count.format(self.keys.len()).as_bytes());
        for argument in self.keys.iter().chain(&self.args) {
            write_bulk_string(bytes, argument);
        }
    }

    /// Whether it contains no check.
    pub(crate) const fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    pub(super) fn empty(checks: usize, now: Option<Timestamp>) -> Self {
        let mut args =
            CallArguments::with_capacity(checks.saturating_add(1), checks.saturating_mul(ROOM));
        match now {
            Some(now) => args.push(Blob::default().pair(now.as_nanos()).as_bytes()),
            None => args.push(&[]),
        }
        Self {
            kind: ScriptKind::All,
            keys: CallArguments::with_capacity(checks, checks.saturating_mul(ROOM)),
            args,
        }
    }

    fn add(
        &mut self,
        retention: ReservationRetention,
        check: &QuotaCheck<'_>,
        key_name: KeyName,
    ) -> Result<(), StoreError> {
        let quota = check.limit.limit.quota();
        let encoding = CheckEncoding::new(check.op, quota, retention);
        let side_key = encoding.ledger_op.is_some().then_some(SideKey::Ledger);
        self.push(encoding, check, key_name, side_key)
    }

    /// Adds one check: its own key, and its side key if it has one.
    fn push(
        &mut self,
        encoding: CheckEncoding,
        check: &QuotaCheck<'_>,
        key_name: KeyName,
        side_key: Option<SideKey>,
    ) -> Result<(), StoreError> {
        let quota = check.limit.limit.quota();
        let is_first = self.keys.is_empty();
        self.keys
            .push_with(|bytes| key_name.append_name(check.limit.id, bytes));
        if self.keys.repeats_last() {
            return Err(bad("duplicate key of one limit in the batch"));
        }
        let mut blob = algorithm::encode(quota, encoding.op).ok_or_else(unsupported)?;
        let operation = blob.operation_mut();
        let mut charge = encoding.charge;
        if let (Some(ledger), Some(of)) = (encoding.ledger_op, charge) {
            charge = Some(of.byte(*operation));
            *operation = ledger;
        }
        *operation |= encoding.flags;
        let kind = match (*operation, algorithm::script(quota)) {
            _ if encoding.ledger_op.is_some() => ScriptKind::All,
            (code::SPEND, ScriptKind::Buckets) => ScriptKind::Spend,
            (_, script) => script,
        };
        self.kind = if is_first {
            kind
        } else {
            self.kind.covering(kind)
        };
        self.args.push(blob.as_bytes());
        if let Some(charge) = charge {
            self.args.push(charge.as_bytes());
        }
        match side_key {
            None => {}
            Some(SideKey::Ledger) => self.keys.push(&ledger_name(&key_name.name(check.limit.id))),
            Some(SideKey::Marker(id)) => {
                self.keys
                    .push(&undo_marker_name(&key_name.name(check.limit.id), id));
            }
        }
        Ok(())
    }
}

/// The approximate size of a name, and of a limit's arguments.
const ROOM: usize = 40;

/// A further key of a state.
#[derive(Clone, Copy, Debug)]
enum SideKey {
    /// The state's reservations.
    Ledger,
    /// The marker that records the refund with this id.
    Marker(u128),
}

/// The encoding of one check.
#[derive(Clone, Copy)]
struct CheckEncoding {
    /// The operation for the algorithm.
    op: Op,
    /// The operation on the ledger that runs first, if any.
    ledger_op: Option<u8>,
    flags: u8,
    /// The earlier charge that the operation corrects, if any.
    charge: Option<Blob>,
}

impl CheckEncoding {
    fn new(op: Op, quota: &Quota, retention: ReservationRetention) -> Self {
        let plain = |op| Self {
            op,
            ledger_op: None,
            flags: 0,
            charge: None,
        };
        let on_ledger = |op, code, id: ReservationId, number, cost| Self {
            op,
            ledger_op: Some(code),
            flags: 0,
            charge: Some(
                Blob::default()
                    .id(id.0)
                    .pair(number)
                    .pair(retention.retention.as_nanos())
                    .small(retention.max_records)
                    .pair(cost),
            ),
        };
        // The script finds the receipt of a reserved charge in the ledger.
        let settle = |actual| Op::Settle {
            receipt: Receipt::default(),
            actual,
        };
        match op {
            Op::Peek(cost) => Self {
                flags: code::PEEK,
                ..plain(Op::Spend(cost))
            },
            Op::Settle { receipt, actual } => Self {
                charge: Some(receipt_blob(receipt, quota).pair(actual)),
                ..plain(op)
            },
            Op::Reserve { id, cost, hold } => {
                on_ledger(Op::Spend(cost), code::RESERVE, id, hold.as_nanos(), cost)
            }
            Op::SettleReserved { id, actual } => {
                on_ledger(settle(actual), code::SETTLE_RESERVED, id, actual, 0)
            }
            Op::CancelReserved(id) => on_ledger(settle(0), code::CANCEL_RESERVED, id, 0, 0),
            op => plain(op),
        }
    }
}

/// The receipt of the charge to correct.
fn receipt_blob(receipt: Receipt, quota: &Quota) -> Blob {
    // Units of a mark per second.
    let step = algorithm::mark_nanos(quota);
    let second = 1_000_000_000 / step;
    Blob::default()
        .pair(receipt.cost)
        .pair(receipt.at.as_nanos())
        .split(receipt.mark / second, receipt.mark % second * step)
}

fn write_bulk_string(bytes: &mut Vec<u8>, text: &[u8]) {
    write_length(bytes, b'$', text.len());
    bytes.extend_from_slice(text);
    bytes.extend_from_slice(b"\r\n");
}

fn write_length(bytes: &mut Vec<u8>, kind: u8, length: usize) {
    bytes.push(kind);
    bytes.extend_from_slice(itoa::Buffer::new().format(length).as_bytes());
    bytes.extend_from_slice(b"\r\n");
}

fn bad(detail: &'static str) -> StoreError {
    StoreError::new(StoreErrorKind::BadRequest, detail)
}

fn unsupported() -> StoreError {
    bad("the limit's algorithm does not support this operation")
}
