//! Explains what a request costs, and which requests are counted.
//!
//! Must not know: requests, quotas.

use crate::humanize::format_number;
use crate::model::{Cost, Count, StatusClass};

pub(super) fn describe_cost(cost: &Cost) -> Option<String> {
    Some(match cost {
        Cost::Fixed(1) => return None,
        Cost::Fixed(units) => format!("a request costs {}", format_number(*units)),
        Cost::ByValue {
            attribute,
            values,
            otherwise,
        } => {
            let listed: Vec<_> = values
                .iter()
                .map(|(value, units)| format!("{value} {}", format_number(*units)))
                .collect();
            format!(
                "a request costs by {attribute}: {}, anything else {}",
                listed.join(", "),
                format_number(*otherwise)
            )
        }
        Cost::Attribute {
            attribute,
            at_least,
            at_most,
            otherwise,
        } => format!(
            "a request costs the number in {attribute}, from {} to {}; {} if there is no number",
            format_number(*at_least),
            format_number(*at_most),
            format_number(*otherwise)
        ),
        Cost::Response {
            header,
            estimate,
            at_most,
        } => format!(
            "a request costs {} until its response has the actual cost in {header}, at most {}; a higher cost becomes debt, which refills before the next request is admitted",
            format_number(*estimate),
            format_number(*at_most)
        ),
        Cost::ResponseBody { estimate, at_most } => format!(
            "a request costs {} until the body of its response has ended, then its bytes, at most {}; a higher cost becomes debt, which refills before the next request is admitted",
            format_number(*estimate),
            format_number(*at_most)
        ),
    })
}

pub(super) fn describe_refund(refund: &[StatusClass]) -> Option<String> {
    let classes: Vec<_> = refund.iter().map(ToString::to_string).collect();
    (!refund.is_empty()).then(|| {
        format!(
            "gives the charge back for requests that were answered {}",
            classes.join(" or ")
        )
    })
}

pub(super) fn describe_count(count: &Count) -> Option<String> {
    match count {
        Count::Requests => None,
        Count::Denials => Some("counts only requests that a limit denied".to_owned()),
        Count::Responses(classes) => {
            let classes: Vec<_> = classes
                .iter()
                .map(|class| match class {
                    StatusClass::Code(status) => status.to_string(),
                    StatusClass::Class(first) => format!("{first}xx"),
                })
                .collect();
            Some(format!(
                "counts only requests that were answered {}; requests in flight are not counted yet",
                classes.join(" or ")
            ))
        }
    }
}
