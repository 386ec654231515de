//! What a ticket needs of a response, kept until the store is called.
//!
//! Must not know: how tickets are settled, HTTP libraries.

use super::{Response, Ticket};

/// A response without what no limit reads.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ResponseSummary {
    status: u16,
    headers: Vec<(Box<str>, Box<[u8]>)>,
    body_bytes: Option<u64>,
}

impl ResponseSummary {
    /// A response with this status, no headers, and this many bytes of body.
    #[must_use]
    pub const fn new(status: u16, body_bytes: Option<u64>) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body_bytes,
        }
    }
}

impl Ticket {
    /// What this ticket needs of a response.
    #[must_use]
    pub fn summarize(&self, response: &dyn Response) -> ResponseSummary {
        let mut summary = ResponseSummary::new(response.status(), response.body_bytes());
        for item in &self.items {
            let rule = self.generation.rule(item.rule);
            let Some(name) = rule.and_then(|(rule, _)| rule.cost.response_header()) else {
                continue;
            };
            if summary.header(name).is_none()
                && let Some(value) = response.header(name)
            {
                summary.headers.push((name.into(), value.into()));
            }
        }
        summary
    }
}

impl Response for ResponseSummary {
    fn status(&self) -> u16 {
        self.status
    }

    fn header(&self, name: &str) -> Option<&[u8]> {
        let mut headers = self.headers.iter();
        let (_, value) = headers.find(|(known, _)| &**known == name)?;
        Some(value)
    }

    fn body_bytes(&self) -> Option<u64> {
        self.body_bytes
    }
}
