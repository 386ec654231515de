//! Parses replies of the register's script; every field is validated. Must not know: which command was sent.

use redis::Value;
use tollgate_core::Nanos;
use tollgate_store::register::{
    MAX_BODY_LEN, MAX_NAME_LEN, MemberList, RegisterCursor, RegisterEntry, RegisteredNode,
};

use super::heartbeat;

/// Digits of an instant or a version.
const DIGITS: usize = 16;

/// A reply of the script.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RegisterReply {
    Members(MemberList),
    Left,
    Entries(EntryPage),
    /// The epoch differs from that of the previous page.
    EpochChanged,
    Cursor(RegisterCursor),
    Full,
}

/// One page of entries.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct EntryPage {
    pub(super) cursor: RegisterCursor,
    pub(super) is_complete: bool,
    pub(super) lost_after: Option<u64>,
    pub(super) has_more: bool,
    pub(super) entries: Vec<RegisterEntry>,
}

impl RegisterReply {
    pub(super) fn read(reply: Value) -> Option<Self> {
        let Value::Array(values) = reply else {
            return None;
        };
        let mut values = values.into_iter();
        let tag = bytes(values.next()?)?;
        let read = match &*tag {
            b"left" => Self::Left,
            b"other" => Self::EpochChanged,
            b"full" => Self::Full,
            b"mark" => Self::Cursor(cursor(&mut values)?),
            b"roll" => {
                let now = integer(values.next()?)?;
                let cursor = cursor(&mut values)?;
                Self::Members(member_list(now, cursor, values.next()?)?)
            }
            b"said" => {
                let now = integer(values.next()?)?;
                Self::Entries(EntryPage {
                    cursor: cursor(&mut values)?,
                    is_complete: integer(values.next()?)? == 1,
                    lost_after: match values.next()? {
                        Value::Int(-1) => None,
                        after => Some(integer(after)?),
                    },
                    has_more: integer(values.next()?)? == 1,
                    entries: entries(now, values.next()?)?,
                })
            }
            _ => return None,
        };
        values.next().is_none().then_some(read)
    }
}

fn cursor(values: &mut impl Iterator<Item = Value>) -> Option<RegisterCursor> {
    Some(RegisterCursor {
        epoch: integer(values.next()?)?,
        version: integer(values.next()?)?,
    })
}

fn member_list(now: u64, cursor: RegisterCursor, heartbeats: Value) -> Option<MemberList> {
    let Value::Array(heartbeats) = heartbeats else {
        return None;
    };
    let mut unreadable = 0_usize;
    let mut nodes = Vec::with_capacity(heartbeats.len());
    for one in heartbeats {
        // A node whose heartbeat this version cannot parse still counts.
        match bytes(one).and_then(|bytes| registered_node(now, &bytes)) {
            Some(registered_node) => nodes.push(registered_node),
            None => unreadable = unreadable.saturating_add(1),
        }
    }
    Some(MemberList::new(nodes, unreadable, cursor))
}

fn registered_node(now: u64, bytes: &[u8]) -> Option<RegisteredNode> {
    let (instant, text) = bytes.split_at_checked(DIGITS)?;
    let age = now.saturating_sub(digits(instant)?);
    Some(RegisteredNode {
        heartbeat: heartbeat::read(std::str::from_utf8(text).ok()?)?,
        age: Nanos::from_millis(age),
    })
}

fn entries(now: u64, values: Value) -> Option<Vec<RegisterEntry>> {
    let Value::Array(values) = values else {
        return None;
    };
    let mut values = values.into_iter();
    let mut entries = Vec::with_capacity(values.len() / 2);
    while let Some(name) = values.next() {
        entries.push(entry(now, bytes(name)?, &bytes(values.next()?)?)?);
    }
    Some(entries)
}

fn entry(now: u64, name: Vec<u8>, value: &[u8]) -> Option<RegisterEntry> {
    let (version, rest) = value.split_at_checked(DIGITS)?;
    let (sign, rest) = rest.split_first()?;
    let (ends, body) = rest.split_at_checked(DIGITS)?;
    let left = match digits(ends)? {
        0 => None,
        // Expired but not deleted yet: no time is left.
        ends => Some(Nanos::from_millis(ends.saturating_sub(now))),
    };
    let is_bounded = name.len() <= MAX_NAME_LEN && body.len() <= MAX_BODY_LEN;
    is_bounded.then_some(RegisterEntry {
        name: String::from_utf8(name).ok()?.into(),
        body: body.into(),
        is_tombstone: match sign {
            b'+' => false,
            b'-' => true,
            _ => return None,
        },
        expires_in: left,
        version: digits(version)?,
    })
}

fn digits(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// An integer, or its decimal digits.
fn integer(value: Value) -> Option<u64> {
    match value {
        Value::Int(n) => u64::try_from(n).ok(),
        other => digits(&bytes(other)?),
    }
}

fn bytes(value: Value) -> Option<Vec<u8>> {
    match value {
        Value::BulkString(bytes) => Some(bytes),
        Value::SimpleString(text) => Some(text.into_bytes()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn nodes_with_an_unreadable_heartbeat_are_counted() {
        let instant = "0000000000001000";
        let readable = format!("{instant}1 feed 1 7 3 0.6.0 5");
        let later = format!("{instant}2 {{\"node\":9}}");
        let heartbeats = Value::Array(vec![bulk(&readable), bulk(&later), bulk("x"), Value::Nil]);
        let reply = vec![
            bulk("roll"),
            Value::Int(1_250),
            Value::Int(9),
            bulk("4"),
            heartbeats,
        ];
        let Some(RegisterReply::Members(member_list)) = RegisterReply::read(Value::Array(reply))
        else {
            panic!("it is a member list");
        };
        assert_eq!(
            (
                member_list.nodes.len(),
                member_list.unreadable,
                member_list.count()
            ),
            (1, 3, 4)
        );
        assert_eq!(member_list.nodes[0].age, Nanos::from_millis(250));
        assert_eq!(member_list.load.in_flight, 5);
        let (epoch, version) = (9, 4);
        assert_eq!(member_list.cursor, RegisterCursor { epoch, version });
    }

    #[test]
    fn entries_report_their_time_to_live() {
        let entry = |value: &str| entry(5_000, b"switch".to_vec(), value.as_bytes());
        let holds = entry("0000000000000007+0000000000000000body").unwrap();
        assert_eq!(
            (holds.version, holds.expires_in, &*holds.body),
            (7, None, &b"body"[..])
        );
        let gone = entry("0000000000000007-0000000000007000").unwrap();
        assert!(gone.is_tombstone);
        assert_eq!(gone.expires_in, Some(Nanos::from_secs(2)));
        let over = entry("0000000000000007+0000000000004000").unwrap();
        assert_eq!(over.expires_in, Some(Nanos::ZERO));
        for wrong in [
            "",
            "0000000000000007",
            "0000000000000007*0000000000000000",
            "x",
        ] {
            assert_eq!(entry(wrong), None, "{wrong}");
        }
        let long = format!(
            "0000000000000007+0000000000000000{}",
            "b".repeat(MAX_BODY_LEN + 1)
        );
        assert_eq!(entry(&long), None);
    }

    #[test]
    fn s_10_an_invalid_register_reply_is_not_parsed() {
        let array = |values: &[Value]| RegisterReply::read(Value::Array(values.to_vec()));
        assert_eq!(array(&[bulk("left")]), Some(RegisterReply::Left));
        for wrong in [
            array(&[]),
            array(&[Value::Int(1)]),
            array(&[bulk("left"), bulk("right")]),
            array(&[bulk("mark"), Value::Int(1)]),
            array(&[bulk("mark"), Value::Int(-1), Value::Int(1)]),
            array(&[
                bulk("roll"),
                Value::Int(1),
                Value::Int(1),
                Value::Int(1),
                bulk(""),
            ]),
            array(&[bulk("said"), Value::Int(1)]),
            RegisterReply::read(Value::Nil),
            RegisterReply::read(bulk("left")),
        ] {
            assert_eq!(wrong, None);
        }
    }
}
