//! Envoy's messages of RLQS: reads usage reports and writes assignments.
//!
//! A bucket is identified by its encoded id, with its pairs sorted by key; the same bytes are sent back. Must not know: limits,
//! shares.

use std::sync::Arc;

use crate::config::{DescriptorEntry, MAX_ENTRIES};
use tollgate_core::Nanos;

use super::strategy::Strategy;
use crate::protobuf::{MessageFields, MessageWriter, WireError, WireValue, text};

/// The longest id of a bucket in bytes. Ids contain values of end users, so a longer one is refused without closing the
/// stream.
pub(super) const MAX_ID_LEN: usize = 1_024;

/// One message of a client.
#[derive(Debug, Default)]
pub(super) struct UsageReports<'a> {
    pub(super) domain: &'a str,
    pub(super) usages: Vec<BucketUsage<'a>>,
    /// The number of buckets with an invalid id.
    pub(super) unusable: u64,
}

/// The usage of one bucket since its last report.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BucketUsage<'a> {
    /// The pairs of the id, sorted by key.
    pub(super) pairs: Vec<DescriptorEntry<'a>>,
    pub(super) id: Arc<[u8]>,
    /// The time since the last report by the client's clock. Recent versions of Envoy send whole seconds.
    pub(super) elapsed: Nanos,
    /// Requests, admitted or denied.
    pub(super) requests: u64,
}

/// The action for one bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BucketAction {
    Assign(Strategy),
    Abandon,
}

/// Reads a `RateLimitQuotaUsageReports`.
pub(super) fn read_reports(bytes: &[u8]) -> Result<UsageReports<'_>, WireError> {
    let mut reports = UsageReports::default();
    let mut fields = MessageFields::new(bytes);
    while let Some(field) = fields.next_field()? {
        match field {
            (1, WireValue::Bytes(bytes)) => reports.domain = text(bytes, "domain")?,
            (2, WireValue::Bytes(bytes)) => match read_usage(bytes)? {
                Some(usage) => reports.usages.push(usage),
                None => reports.unusable = reports.unusable.saturating_add(1),
            },
            _ => {}
        }
    }
    Ok(reports)
}

/// `None` if the id is invalid.
fn read_usage(bytes: &[u8]) -> Result<Option<BucketUsage<'_>>, WireError> {
    let mut pairs = Vec::new();
    let (mut elapsed, mut requests) = (Nanos::ZERO, 0_u64);
    let mut is_usable = true;
    let mut fields = MessageFields::new(bytes);
    while let Some(field) = fields.next_field()? {
        match field {
            (1, WireValue::Bytes(bytes)) => {
                is_usable &= bytes.len() <= MAX_ID_LEN;
                if is_usable {
                    read_pairs(bytes, &mut pairs)?;
                }
            }
            (2, WireValue::Bytes(bytes)) => elapsed = read_duration(bytes)?,
            (3 | 4, WireValue::Number(number)) => requests = requests.saturating_add(number),
            _ => {}
        }
    }
    // The pairs are a map: of duplicate keys the last value counts.
    pairs.sort_by(|a: &DescriptorEntry<'_>, b| a.key.cmp(b.key));
    pairs.reverse();
    pairs.dedup_by(|later, earlier| later.key == earlier.key);
    pairs.reverse();
    is_usable &= !pairs.is_empty() && pairs.len() <= MAX_ENTRIES;
    if !is_usable {
        return Ok(None);
    }
    let mut id = Vec::new();
    write_id(&pairs, &mut MessageWriter::new(&mut id));
    Ok(Some(BucketUsage {
        pairs,
        id: id.into(),
        elapsed,
        requests,
    }))
}

fn read_pairs<'a>(bytes: &'a [u8], pairs: &mut Vec<DescriptorEntry<'a>>) -> Result<(), WireError> {
    let mut fields = MessageFields::new(bytes);
    while let Some(field) = fields.next_field()? {
        let (1, WireValue::Bytes(bytes)) = field else {
            continue;
        };
        let mut pair = DescriptorEntry::new("", "");
        let mut fields = MessageFields::new(bytes);
        while let Some(field) = fields.next_field()? {
            match field {
                (1, WireValue::Bytes(bytes)) => pair.key = text(bytes, "bucket_id")?,
                (2, WireValue::Bytes(bytes)) => pair.value = text(bytes, "bucket_id")?,
                _ => {}
            }
        }
        pairs.push(pair);
    }
    Ok(())
}

/// A `google.protobuf.Duration`. Negative values count as zero.
fn read_duration(bytes: &[u8]) -> Result<Nanos, WireError> {
    let mut span = Nanos::ZERO;
    let mut fields = MessageFields::new(bytes);
    while let Some(field) = fields.next_field()? {
        let part = match field {
            (1, WireValue::Number(seconds)) if i64::try_from(seconds).is_ok() => {
                Nanos::from_secs(seconds)
            }
            (2, WireValue::Number(nanos)) if i32::try_from(nanos).is_ok() => {
                Nanos::from_nanos(nanos)
            }
            _ => Nanos::ZERO,
        };
        span = span.saturating_add(part);
    }
    Ok(span)
}

fn write_id(pairs: &[DescriptorEntry<'_>], writer: &mut MessageWriter<'_>) {
    for pair in pairs {
        writer.message(1, |writer| {
            writer.text(1, pair.key.as_bytes());
            writer.text(2, pair.value.as_bytes());
        });
    }
}

/// Writes a `RateLimitQuotaResponse` with the action for each bucket. Assignments last for `seconds`.
pub(super) fn write_response(
    actions: &[(Arc<[u8]>, BucketAction)],
    seconds: u64,
    out: &mut Vec<u8>,
) {
    for (id, action) in actions {
        MessageWriter::new(out).message(1, |writer| {
            writer.bytes(1, id);
            match action {
                BucketAction::Assign(strategy) => writer.message(2, |writer| {
                    writer.message(2, |writer| writer.number(1, seconds));
                    writer.message(3, |writer| write_strategy(*strategy, writer));
                }),
                BucketAction::Abandon => writer.message(3, |_nothing| {}),
            }
        });
    }
}

fn write_strategy(strategy: Strategy, writer: &mut MessageWriter<'_>) {
    match strategy {
        Strategy::AllowAll => writer.oneof_number(1, 0),
        Strategy::DenyAll => writer.oneof_number(1, 1),
        Strategy::Tokens(tokens) => writer.message(3, |writer| {
            writer.number(1, tokens.max_tokens.into());
            writer.message(2, |writer| writer.number(1, tokens.tokens_per_fill.into()));
            writer.message(3, |writer| {
                writer.number(1, tokens.seconds);
                writer.number(2, tokens.nanos());
            });
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rlqs::strategy::QuotaTokenBucket;

    fn report(pairs: &[(&str, &str)], numbers: &[(u32, u64)]) -> Vec<u8> {
        let mut out = Vec::new();
        let mut writer = MessageWriter::new(&mut out);
        writer.text(1, b"edge");
        writer.message(2, |writer| {
            let pairs: Vec<_> = pairs
                .iter()
                .map(|(k, v)| DescriptorEntry::new(k, v))
                .collect();
            writer.message(1, |writer| write_id(&pairs, writer));
            writer.message(2, |writer| writer.number(1, 5));
            for (field, number) in numbers {
                writer.number(*field, *number);
            }
        });
        out
    }

    #[test]
    fn a_bucket_id_does_not_depend_on_the_order_of_its_pairs() {
        let one = report(&[("a", "1"), ("b", "2")], &[(3, 7), (4, 2)]);
        let other = report(&[("b", "0"), ("b", "2"), ("a", "1")], &[(3, 7), (4, 2)]);
        let (one, other) = (read_reports(&one).unwrap(), read_reports(&other).unwrap());
        assert_eq!(one.usages, other.usages);
        assert_eq!(one.domain, "edge");
        let usage = &one.usages[0];
        assert_eq!((usage.elapsed, usage.requests), (Nanos::from_secs(5), 9));
        assert_eq!(
            usage.pairs,
            [
                DescriptorEntry::new("a", "1"),
                DescriptorEntry::new("b", "2")
            ]
        );
    }

    #[test]
    fn an_invalid_id_drops_its_bucket_and_nothing_else() {
        let long = "x".repeat(MAX_ID_LEN);
        let many: Vec<String> = (0..=MAX_ENTRIES).map(|n| n.to_string()).collect();
        let many: Vec<_> = many.iter().map(|n| (&**n, "v")).collect();
        for pairs in [&[][..], &[("a", &*long)], &many] {
            let mut both = report(pairs, &[]);
            both.extend(report(&[("a", "1")], &[]));
            let read = read_reports(&both).unwrap();
            assert_eq!((read.usages.len(), read.unusable), (1, 1));
        }
        assert!(read_reports(&[0x12, 0x05, 0x01]).is_err());
        let not_utf8 = [0x0a, 0x01, 0xff];
        assert_eq!(
            read_reports(&not_utf8).unwrap_err(),
            WireError::Text("domain")
        );
    }

    #[test]
    fn i13_no_bytes_of_a_report_break_a_promise() {
        let whole = report(&[("a", "1"), ("b", "2")], &[(3, u64::MAX), (4, 9)]);
        for end in 0..whole.len() {
            // A truncated message is invalid, unless it ends between two fields.
            let read = read_reports(&whole[..end]);
            assert!(read.is_err() || read.unwrap().usages.is_empty());
        }
        for index in 0..whole.len() {
            for byte in 0..=u8::MAX {
                let mut changed = whole.clone();
                changed[index] = byte;
                if let Ok(read) = read_reports(&changed) {
                    for usage in read.usages {
                        assert!(!usage.pairs.is_empty() && usage.pairs.len() <= MAX_ENTRIES);
                        assert!(usage.id.len() <= whole.len());
                    }
                }
            }
        }
    }

    #[test]
    fn assignments_are_written_as_envoy_reads_them() {
        let read = report(&[("a", "1")], &[]);
        let id = read_reports(&read).unwrap().usages[0].id.clone();
        let tokens = Strategy::Tokens(QuotaTokenBucket {
            max_tokens: 3,
            tokens_per_fill: 2,
            seconds: 60,
        });
        let all = [
            (id.clone(), BucketAction::Assign(tokens)),
            (id.clone(), BucketAction::Assign(Strategy::AllowAll)),
            (id, BucketAction::Abandon),
        ];
        let mut out = Vec::new();
        write_response(&all, 15, &mut out);
        let bucket = [0x0a, 8, 0x0a, 6, 0x0a, 1, b'a', 0x12, 1, b'1'];
        let mut expected = vec![0x0a, 32];
        expected.extend(bucket);
        expected.extend([0x12, 20, 0x12, 2, 8, 15, 0x1a, 14, 0x1a, 12, 8, 3]);
        expected.extend([0x12, 2, 8, 2, 0x1a, 4, 8, 60, 16, 60]);
        expected.extend([0x0a, 20]);
        expected.extend(bucket);
        expected.extend([0x12, 8, 0x12, 2, 8, 15, 0x1a, 2, 8, 0]);
        expected.extend([0x0a, 12]);
        expected.extend(bucket);
        expected.extend([0x1a, 0]);
        assert_eq!(out, expected);
    }
}
