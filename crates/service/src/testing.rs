//! What tests of this crate share: a request by name, and when tests begin. Must not know: any one test.

use tollgate_core::Timestamp;
use tollgate_policy::attributes::{Attribute, Attributes};

pub(crate) const START: Timestamp = Timestamp::from_secs(1_700_000_000);

/// A request with `header.user`.
#[derive(Clone, Debug)]
pub(crate) struct Caller(String);

impl Caller {
    pub(crate) fn named(user: &str) -> Self {
        Self(user.to_owned())
    }
}

impl Attributes for Caller {
    fn get(&self, attribute: &Attribute) -> Option<&[u8]> {
        let is_user = Attribute::named("header.user").as_ref() == Some(attribute);
        is_user.then_some(self.0.as_bytes())
    }
}
