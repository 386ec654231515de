//! Reads the quota of CORS preflights.
//!
//! Must not know: which requests are preflights.

use serde_json::{Value, json};
use tollgate_core::QuotaUnit;

use super::TreeReader;
use crate::grammar;
use crate::model::{Policy, RateSpec};
use crate::schema::definition_ref;
use crate::source::{Located, SourceNode, SourceValue};

/// The value of `preflights` that makes them ordinary requests.
const NO_PREFLIGHTS: &str = "none";

/// `preflights`: a rate, or `none`.
pub(super) fn read_preflights(
    reader: &mut TreeReader,
    node: &SourceNode,
    name: &str,
) -> Option<Located<RateSpec>> {
    if matches!(&node.value, SourceValue::Scalar { text, .. } if &**text == NO_PREFLIGHTS) {
        return None;
    }
    let parse = |text: &str| grammar::parse_rate(text, QuotaUnit::Requests);
    let rate = reader.parse(node, name, parse);
    let rate = rate.unwrap_or(Policy::PREFLIGHTS);
    if rate.units == 0 {
        reader.diagnostics.add(
            node.location,
            "`preflights` would deny every preflight",
            "write `preflights: none` to charge them to the limits like other requests",
        );
    }
    Some(Located::new(rate, node.location))
}

/// The schema of `preflights`.
pub(super) fn preflights_schema() -> Value {
    json!({ "anyOf": [{ "const": NO_PREFLIGHTS }, definition_ref("rate")] })
}
