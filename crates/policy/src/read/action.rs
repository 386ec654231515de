//! What happens: `penalty`, `charge`, `on_store_failure`, `consistency`.
//!
//! Must not know: how any of it is carried out.

use tollgate_core::Nanos;

use super::Reader;
use crate::model::{Consistency, OnStoreFailure, Penalty};
use crate::source::Node;
use crate::words::{self, Wrong, nearest, quoted};

pub(super) const FAILURES: [(&str, OnStoreFailure); 3] = [
    ("local", OnStoreFailure::Local),
    ("open", OnStoreFailure::Open),
    ("closed", OnStoreFailure::Closed),
];

/// Whether a limit charges always: `request` or `always`.
pub(super) const CHARGES: [(&str, bool); 2] = [("request", false), ("always", true)];

/// `none`, `count`, or `block 10m`.
pub(super) fn penalty(reader: &mut Reader, node: &Node) -> Option<Penalty> {
    reader.parse(node, "penalty", |text| match split(text) {
        ("none", "") => Ok(Penalty::None),
        ("count", "") => Ok(Penalty::Count),
        ("block", span) => with_span("block", span, "10m").map(Penalty::Block),
        _ => Err(unknown(
            text,
            &["none", "count", "block"],
            "it may be `none`, `count` or `block 10m`",
        )),
    })
}

/// `exact`, `leased`, or `async 1s`.
pub(super) fn consistency(reader: &mut Reader, node: &Node) -> Option<Consistency> {
    reader.parse(node, "consistency", |text| match split(text) {
        ("exact", "") => Ok(Consistency::Exact),
        ("leased", "") => Ok(Consistency::Leased),
        ("async", span) => with_span("async", span, "1s").map(Consistency::Async),
        _ => Err(unknown(
            text,
            &["exact", "leased", "async"],
            "it may be `exact`, `leased` or `async 1s`",
        )),
    })
}

fn split(text: &str) -> (&str, &str) {
    let (word, rest) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
    (word, rest.trim())
}

fn with_span(word: &str, span: &str, example: &str) -> Result<Nanos, Wrong> {
    if span.is_empty() {
        return Err(Wrong::with(
            format!("`{word}` does not say how long"),
            format!("write `{word} {example}`"),
        ));
    }
    words::duration(span)
}

fn unknown(text: &str, known: &[&str], help: &str) -> Wrong {
    let (word, rest) = split(text);
    match nearest(word, known.iter().copied()) {
        Some(meant) if meant != word => {
            let meant = format!("{meant} {rest}");
            Wrong::with(
                format!("it cannot be {}", quoted(text)),
                format!("did you mean {}?", quoted(meant.trim())),
            )
        }
        _ => Wrong::with(format!("it cannot be {}", quoted(text)), help),
    }
}
