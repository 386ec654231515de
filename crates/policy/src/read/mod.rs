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
pub(crate) use matching::test_schema;
pub(crate) use places::Places;
pub(crate) use report::Report;
pub(crate) use top::{MODES, schema};

use serde_json::Value;

use crate::model::{IpNet, Policy};
use crate::rules::Rules;
use crate::source::{Node, Problem, given_twice};
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
/// use tollgate_policy::source::{Format, parse};
///
/// let tree = parse("limits: [{ name: all, rate: 100/s, brust: 5, burst: 1O }]", Format::Yaml).unwrap();
/// let problems = tollgate_policy::read::policy(&tree).unwrap_err();
/// assert_eq!(problems.len(), 2);
/// assert_eq!(problems[0].help.as_deref(), Some("did you mean `burst`?"));
/// assert_eq!(problems[1].help.as_deref(), Some("did you mean `10`?"));
/// ```
///
/// # Errors
/// Everything that is wrong with it, in the order of the file.
pub fn policy(node: &Node) -> Result<Policy, Vec<Problem>> {
    let mut reader = Reader::default();
    for twice in given_twice(node) {
        reader.report.push(twice);
    }
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

/// What is known while a policy is read.
#[derive(Default)]
pub(crate) struct Reader {
    /// What is wrong so far.
    report: Report,
    /// The named networks.
    lists: Vec<(Box<str>, Vec<IpNet>)>,
}
