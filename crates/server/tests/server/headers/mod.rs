//! Header fields: every dialect over real sockets, and properties that hold for every policy.

mod allocation;
mod client_specific_values;
mod dialects;
mod documentation;
mod minimal_body;
mod problem_details;
mod quota_fields;
mod retry_promises;

use std::sync::Arc;

use tollgate_core::Timestamp;
use tollgate_engine::{CheckOptions, Verdict};
use tollgate_http::HeaderFields;
use tollgate_policy::attributes::{Attribute, Attributes};
use tollgate_server::{HttpApi, Transport};
use tollgate_store::ManualClock;

use crate::harness::{policy, ready_now};

const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);

type TestApp = HttpApi<Arc<ManualClock>>;

/// An API with a manual clock.
fn app(text: &str) -> (TestApp, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::at(NOW));
    let app = HttpApi::new(&policy(text), 1_000, Arc::clone(&clock)).unwrap();
    (app, clock)
}

/// A request with these attributes.
struct TestAttributes<'a>(&'a [(&'a str, &'a str)]);

impl Attributes for TestAttributes<'_> {
    fn get(&self, attribute: &Attribute) -> Option<&[u8]> {
        let is_it = |(name, _): &&(&str, &str)| match attribute {
            Attribute::Header(header) => name.strip_prefix("header.") == Some(header),
            Attribute::Path => *name == "path",
            _ => false,
        };
        self.0.iter().find(is_it).map(|(_, value)| value.as_bytes())
    }
}

/// Decides at this cost, or at the policy's.
fn check(app: &TestApp, says: &[(&str, &str)], cost: impl Into<Option<u64>>) -> Verdict {
    let options = CheckOptions {
        cost: cost.into(),
        ..CheckOptions::default()
    };
    ready_now(
        app.service()
            .check(Transport::Http, &TestAttributes(says), options),
    )
}

/// The header fields of a decision as text.
fn header_fields(app: &TestApp, verdict: &Verdict) -> Vec<(&'static str, String)> {
    let mut words = HeaderFields::new();
    app.service().fields(verdict, &mut words);
    let text = |value: &[u8]| String::from_utf8(value.to_vec()).unwrap();
    words
        .iter()
        .map(|(name, value)| (name, text(value)))
        .collect()
}

fn field(fields: &[(&'static str, String)], name: &str) -> Option<String> {
    let found = fields.iter().find(|(known, _)| *known == name);
    found.map(|(_, value)| value.clone())
}
