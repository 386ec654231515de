//! Reads a tree into the model of a policy: expands short forms and reports all mistakes at once.
//!
//! Each file reads one part of a policy. [`FieldReader`] reads maps and reports unknown names, `scalar` reads single
//! values, and [`grammar`](crate::grammar) parses texts. Must not know: file formats. `check` knows the meaning of a
//! policy.

mod action;
mod condition_values;
mod cost;
mod diagnostic_sink;
mod field_reader;
mod field_spec;
mod gateway;
mod jwt;
mod key;
mod limit;
mod lists;
mod locations;
mod matching;
mod overload;
mod paths;
mod policy;
mod preflights;
mod quota;
mod rate;
mod scalar;
mod shares;
mod tiers;
mod upstream;

#[cfg(test)]
mod tests;

pub(crate) use diagnostic_sink::DiagnosticSink;
pub use field_reader::FieldReader;
pub(crate) use field_spec::{FieldDefault, FieldSpec};
pub(crate) use locations::FieldLocations;
pub(crate) use matching::test_schema;
pub(crate) use policy::{MODES, schema};
pub use scalar::describe_node;

use serde_json::Value;

use crate::model::{IpNet, Policy};
use crate::rules::Rules;
use crate::source::{Diagnostic, SourceLocation, SourceNode, find_duplicate_names};
use field_spec::field_specs;
use quota::{AMOUNT_FIELDS, OPTION_FIELDS, UNLIMITED_FIELD};

/// The schemas of the parts of a policy, by definition name.
pub(crate) fn schemas() -> [(&'static str, Value); 11] {
    [
        ("limit", limit::schema()),
        ("level", tiers::level_schema()),
        ("key", key::schema()),
        ("rates", rate::schema()),
        ("quota", quota::schema()),
        ("tiers", tiers::schema()),
        ("shares", shares::schema()),
        ("override", tiers::override_schema()),
        ("cost", cost::cost_schema()),
        ("count", cost::count_schema()),
        ("gateway_route", gateway::route_schema()),
    ]
}

/// All maps of a policy with their fields.
pub(crate) fn tables() -> [(&'static str, Vec<FieldSpec>); 30] {
    let quota = || field_specs(&OPTION_FIELDS).chain(field_specs(&AMOUNT_FIELDS));
    [
        ("policy", field_specs(&policy::POLICY).collect()),
        ("fleet", field_specs(&policy::FLEET).collect()),
        ("paths", field_specs(&paths::PATHS).collect()),
        ("jwt", field_specs(&jwt::JWT).collect()),
        ("priority", field_specs(&overload::PRIORITY).collect()),
        ("overload", field_specs(&overload::OVERLOAD).collect()),
        ("group", field_specs(&lists::GROUP).collect()),
        ("exempt", field_specs(&lists::EXEMPT).collect()),
        ("deny", field_specs(&lists::DENY).collect()),
        ("limit", limit::fields().collect()),
        ("tiers", field_specs(&tiers::TIERS).collect()),
        ("shares", field_specs(&shares::SHARES).collect()),
        ("level", field_specs(&tiers::LEVEL).chain(quota()).collect()),
        (
            "override",
            field_specs(&tiers::OVERRIDE)
                .chain(quota())
                .chain(field_specs(&UNLIMITED_FIELD))
                .collect(),
        ),
        ("key", field_specs(&key::PART).collect()),
        ("computed", field_specs(&rate::COMPUTED_RATE).collect()),
        ("cost-by", field_specs(&cost::BY_VALUE).collect()),
        ("cost-from", field_specs(&cost::FROM_ATTRIBUTE).collect()),
        ("cost-response", field_specs(&cost::FROM_RESPONSE).collect()),
        (
            "cost-response-body",
            field_specs(&cost::FROM_RESPONSE_BODY).collect(),
        ),
        ("count", field_specs(&cost::COUNT).collect()),
        ("test", field_specs(&matching::TEST).collect()),
        ("gateway", field_specs(&gateway::GATEWAY).collect()),
        ("route", field_specs(&gateway::ROUTE).collect()),
        ("header-edits", field_specs(&gateway::EDITS).collect()),
        ("upstream", field_specs(&upstream::UPSTREAM).collect()),
        ("address", field_specs(&upstream::ADDRESS).collect()),
        (
            "health-check",
            field_specs(&upstream::HEALTH_CHECK).collect(),
        ),
        ("ejection", field_specs(&upstream::EJECTION).collect()),
        ("upstream-tls", field_specs(&upstream::TLS).collect()),
    ]
}

/// Reads and checks a policy.
///
/// ```
/// use tollgate_policy::source::{SourceFormat, parse};
///
/// let tree = parse("limits: [{ name: all, rate: 100/s, brust: 5, burst: 1O }]", SourceFormat::Yaml).unwrap();
/// let diagnostics = tollgate_policy::read::read_policy(&tree).unwrap_err();
/// assert_eq!(diagnostics.len(), 2);
/// assert_eq!(diagnostics[0].help.as_deref(), Some("did you mean `burst`?"));
/// assert_eq!(diagnostics[1].help.as_deref(), Some("did you mean `10`?"));
/// ```
///
/// # Errors
/// All diagnostics, in file order.
pub fn read_policy(node: &SourceNode) -> Result<Policy, Vec<Diagnostic>> {
    let mut reader = TreeReader::new(node);
    let (policy, locations) = policy::read_root(&mut reader, node);
    let mut sink = reader.diagnostics;
    crate::check::check_policy(&policy, &locations, &mut sink);
    if sink.len() == 0
        && let Err(diagnostics) = Rules::compile(&policy, [0; 16])
    {
        // An accepted policy compiles with any secret.
        for diagnostic in diagnostics {
            sink.push(diagnostic);
        }
    }
    let diagnostics = sink.finish();
    if diagnostics.is_empty() {
        Ok(policy)
    } else {
        Err(diagnostics)
    }
}

/// Reads a tree and collects diagnostics. Also for other files than policies.
///
/// ```
/// use tollgate_policy::read::{FieldReader, TreeReader};
/// use tollgate_policy::source::{SourceFormat, parse};
///
/// let tree = parse("{ send: 5, exepct: allowed }", SourceFormat::Yaml).unwrap();
/// let mut reader = TreeReader::new(&tree);
/// let mut fields = FieldReader::open(&mut reader, &tree, "a step", "{ send: 5 }").unwrap();
/// let send = fields.take(&mut reader, "send").and_then(|node| reader.number(node, "send", 0, 9));
/// fields.take(&mut reader, "expect");
/// fields.finish(&mut reader);
/// assert_eq!(send, Some(5));
/// assert_eq!(reader.finish()[0].help.as_deref(), Some("did you mean `expect`?"));
/// ```
#[derive(Default)]
pub struct TreeReader {
    /// The diagnostics so far.
    diagnostics: DiagnosticSink,
    /// The named networks of a policy.
    lists: Vec<(Box<str>, Vec<IpNet>)>,
}

impl TreeReader {
    /// Starts to read a tree. Duplicate names are errors in every file.
    #[must_use]
    pub fn new(tree: &SourceNode) -> Self {
        let mut reader = Self::default();
        for duplicate in find_duplicate_names(tree) {
            reader.diagnostics.push(duplicate);
        }
        reader
    }

    /// Reports a mistake at a location, with a suggestion.
    pub fn report(
        &mut self,
        location: SourceLocation,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.diagnostics.add(location, message, help);
    }

    /// Whether there are no diagnostics so far.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.diagnostics.len() == 0
    }

    /// All diagnostics, in file order.
    #[must_use]
    pub fn finish(self) -> Vec<Diagnostic> {
        self.diagnostics.finish()
    }
}

impl std::fmt::Debug for TreeReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader")
            .field("problems", &self.diagnostics.len())
            .finish_non_exhaustive()
    }
}
