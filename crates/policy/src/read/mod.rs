//! A tree of values becomes the model of a policy: every short form spelled out, and everything that is wrong said at
//! once, because whoever corrects a file wants to correct it once.
//!
//! Each file reads one part of a policy with the same few tools: `Fields` over a map that reports names
//! that nobody asked for, scalars that say what they found instead, and [`words`](crate::words) for what stands in them.
//! Must not know: formats, and what a policy means; `check` knows that.

mod action;
mod cost;
mod field;
mod fields;
mod key;
mod limit;
mod lists;
mod matching;
mod places;
mod quota;
mod rate;
mod report;
mod scalar;
mod tiers;
mod top;

#[cfg(test)]
mod tests;

pub(crate) use field::{About, Absent};
pub use fields::FieldReader;
pub(crate) use matching::test_schema;
pub(crate) use places::Places;
pub(crate) use report::Report;
pub use scalar::found;
pub(crate) use top::{MODES, schema};

use serde_json::Value;

use crate::model::{IpNet, Policy};
use crate::rules::Rules;
use crate::source::{Diagnostic, SourceLocation, SourceNode, given_twice};
use field::about;
use quota::{AMOUNT, TERMS, UNLIMITED};

/// The schemas of the parts of a policy, by the names that other schemas refer to them with.
pub(crate) fn schemas() -> [(&'static str, Value); 9] {
    [
        ("limit", limit::schema()),
        ("level", tiers::level_schema()),
        ("key", key::schema()),
        ("rates", rate::schema()),
        ("quota", quota::schema()),
        ("tiers", tiers::schema()),
        ("override", tiers::override_schema()),
        ("cost", cost::cost_schema()),
        ("count", cost::count_schema()),
    ]
}

/// The maps of a policy and their fields.
pub(crate) fn tables() -> [(&'static str, Vec<About>); 16] {
    let quota = || about(&TERMS).chain(about(&AMOUNT));
    [
        ("policy", about(&top::POLICY).collect()),
        ("fleet", about(&top::FLEET).collect()),
        ("group", about(&lists::GROUP).collect()),
        ("exempt", about(&lists::EXEMPT).collect()),
        ("deny", about(&lists::DENY).collect()),
        ("limit", limit::fields().collect()),
        ("tiers", about(&tiers::TIERS).collect()),
        ("level", about(&tiers::LEVEL).chain(quota()).collect()),
        (
            "override",
            about(&tiers::OVERRIDE)
                .chain(quota())
                .chain(about(&UNLIMITED))
                .collect(),
        ),
        ("key", about(&key::PART).collect()),
        ("computed", about(&rate::COMPUTED).collect()),
        ("cost-by", about(&cost::BY_VALUE).collect()),
        ("cost-from", about(&cost::FROM_ATTRIBUTE).collect()),
        ("cost-response", about(&cost::FROM_RESPONSE).collect()),
        ("count", about(&cost::COUNT).collect()),
        ("test", about(&matching::TEST).collect()),
    ]
}

/// Reads and checks a policy.
///
/// ```
/// use tollgate_policy::source::{SourceFormat, parse};
///
/// let tree = parse("limits: [{ name: all, rate: 100/s, brust: 5, burst: 1O }]", SourceFormat::Yaml).unwrap();
/// let problems = tollgate_policy::read::policy(&tree).unwrap_err();
/// assert_eq!(problems.len(), 2);
/// assert_eq!(problems[0].help.as_deref(), Some("did you mean `burst`?"));
/// assert_eq!(problems[1].help.as_deref(), Some("did you mean `10`?"));
/// ```
///
/// # Errors
/// Everything that is wrong with it, in the order of the file.
pub fn policy(node: &SourceNode) -> Result<Policy, Vec<Diagnostic>> {
    let mut reader = Reader::new(node);
    let (policy, places) = top::policy(&mut reader, node);
    let mut report = reader.report;
    crate::check::policy(&policy, &places, &mut report);
    if report.len() == 0
        && let Err(problems) = Rules::compile(&policy, [0; 16])
    {
        // Whatever is accepted compiles, under any secret.
        for problem in problems {
            report.push(problem);
        }
    }
    let problems = report.finish();
    if problems.is_empty() {
        Ok(policy)
    } else {
        Err(problems)
    }
}

/// What is known while a tree of values is read: everything that is wrong so far. Files of other kinds than policies are
/// read with it too.
///
/// ```
/// use tollgate_policy::read::{FieldReader, Reader};
/// use tollgate_policy::source::{SourceFormat, parse};
///
/// let tree = parse("{ send: 5, exepct: allowed }", SourceFormat::Yaml).unwrap();
/// let mut reader = Reader::new(&tree);
/// let mut fields = FieldReader::open(&mut reader, &tree, "a step", "{ send: 5 }").unwrap();
/// let send = fields.take(&mut reader, "send").and_then(|node| reader.number(node, "send", 0, 9));
/// fields.take(&mut reader, "expect");
/// fields.finish(&mut reader);
/// assert_eq!(send, Some(5));
/// assert_eq!(reader.finish()[0].help.as_deref(), Some("did you mean `expect`?"));
/// ```
#[derive(Default)]
pub struct Reader {
    /// What is wrong so far.
    report: Report,
    /// The named networks of a policy.
    lists: Vec<(Box<str>, Vec<IpNet>)>,
}

impl Reader {
    /// Begins to read a tree. A name that stands in a map twice is wrong in every file.
    #[must_use]
    pub fn new(tree: &SourceNode) -> Self {
        let mut reader = Self::default();
        for twice in given_twice(tree) {
            reader.report.push(twice);
        }
        reader
    }

    /// Reports what is wrong at a place, and what would be right.
    pub fn say(
        &mut self,
        place: SourceLocation,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.report.say(place, message, help);
    }

    /// Whether nothing is wrong so far.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.report.len() == 0
    }

    /// Everything that is wrong, in the order of the file.
    #[must_use]
    pub fn finish(self) -> Vec<Diagnostic> {
        self.report.finish()
    }
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader")
            .field("problems", &self.report.len())
            .finish_non_exhaustive()
    }
}
