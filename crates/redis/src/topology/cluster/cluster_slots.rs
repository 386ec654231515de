//! Parses the slot ranges of a cluster. Must not know: connections.

use redis::Value;

use super::super::slot::SLOTS;
use crate::address::Endpoint;

/// A range of slots and the primary that owns it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SlotRange {
    pub(super) first: u16,
    pub(super) last: u16,
    pub(super) owner: Endpoint,
}

/// Parses the reply to `CLUSTER SLOTS`; `None` if it is invalid.
pub(super) fn parse(reply: &Value, source: &Endpoint) -> Option<Vec<SlotRange>> {
    let Value::Array(entries) = reply else {
        return None;
    };
    entries
        .iter()
        .map(|entry| {
            let Value::Array(parts) = entry else {
                return None;
            };
            let [first, last, primary, ..] = parts.as_slice() else {
                return None;
            };
            let (first, last) = (number(first)?, number(last)?);
            let Value::Array(primary) = primary else {
                return None;
            };
            let [host, port, ..] = primary.as_slice() else {
                return None;
            };
            let owner = Endpoint::reported_by(&text(host)?, number(port)?, source);
            let is_range = first <= last && usize::from(last) < SLOTS;
            is_range.then_some(SlotRange { first, last, owner })
        })
        .collect()
}

fn number(value: &Value) -> Option<u16> {
    match value {
        Value::Int(n) => u16::try_from(*n).ok(),
        _ => None,
    }
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => String::from_utf8(bytes.clone()).ok(),
        Value::SimpleString(text) => Some(text.clone()),
        // The node does not know its own address.
        Value::Nil => Some(String::new()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(host: Option<&str>, port: i64) -> Value {
        let host = host.map_or(Value::Nil, |host| Value::BulkString(host.into()));
        Value::Array(vec![host, Value::Int(port), Value::BulkString("id".into())])
    }

    fn entry(first: i64, last: i64, nodes: Vec<Value>) -> Value {
        let mut parts = vec![Value::Int(first), Value::Int(last)];
        parts.extend(nodes);
        Value::Array(parts)
    }

    fn source() -> Endpoint {
        Endpoint::Tcp("10.0.0.9".to_owned(), 7009)
    }

    #[test]
    fn only_the_primary_of_a_range_counts() {
        let reply = Value::Array(vec![
            entry(
                0,
                99,
                vec![node(Some("10.0.0.1"), 7001), node(Some("10.0.0.2"), 7002)],
            ),
            entry(100, 16_383, vec![node(None, 7003)]),
        ]);
        let ranges = parse(&reply, &source()).unwrap();
        assert_eq!(ranges[0].owner, Endpoint::Tcp("10.0.0.1".to_owned(), 7001));
        assert_eq!((ranges[0].first, ranges[0].last), (0, 99));
        assert_eq!(ranges[1].owner, Endpoint::Tcp("10.0.0.9".to_owned(), 7003));
    }

    #[test]
    fn an_invalid_slot_map_is_rejected() {
        let wrong = [
            Value::Nil,
            Value::Array(vec![Value::Int(1)]),
            Value::Array(vec![entry(5, 4, vec![node(None, 1)])]),
            Value::Array(vec![entry(0, 16_384, vec![node(None, 1)])]),
            Value::Array(vec![entry(0, 1, vec![])]),
            Value::Array(vec![entry(0, 1, vec![node(None, 70_000)])]),
            Value::Array(vec![entry(-1, 1, vec![node(None, 1)])]),
        ];
        for reply in wrong {
            assert_eq!(parse(&reply, &source()), None, "{reply:?}");
        }
    }
}
