//! A check request: the attributes of the request, its cost, how long it may wait, and whether it is only a peek.
//!
//! Must not know: the input format.

use tollgate_core::Nanos;
use tollgate_engine::{CheckMode, CheckOptions};
use tollgate_policy::grammar::{self, GrammarError};

use crate::http::bad_input::BadInput;
use crate::http::request_attributes::RequestAttributes;

/// A check request from any input format. Fields that were not given are `None`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct CheckRequest {
    pub(crate) attributes: RequestAttributes,
    /// The cost that the client gives. Without it the policy computes the cost.
    pub(crate) cost: Option<u64>,
    peek: Option<bool>,
    /// The longest wait that the client accepts. Without it the policy decides.
    max_wait: Option<Nanos>,
}

impl CheckRequest {
    /// Whether nothing is charged.
    pub(crate) fn is_peek(&self) -> bool {
        self.peek.unwrap_or(false)
    }

    /// The options of the check: `mode`, or a peek if the client asks for one.
    pub(crate) fn options(&self, mode: CheckMode) -> CheckOptions {
        CheckOptions {
            cost: self.cost,
            mode: match self.is_peek() {
                true => CheckMode::Peek,
                false => mode,
            },
            max_wait: self.max_wait,
            ..CheckOptions::default()
        }
    }

    pub(crate) fn set_attribute(&mut self, name: &str, value: Vec<u8>) -> Result<(), BadInput> {
        self.attributes.set(name, value)
    }

    pub(crate) fn set_cost(&mut self, cost: u64) -> Result<(), BadInput> {
        set("cost", &mut self.cost, cost)
    }

    pub(crate) fn set_wait(&mut self, text: &str) -> Result<(), BadInput> {
        if self.max_wait.is_some() {
            return Err(BadInput::new("wait", text.as_bytes(), "it is given twice"));
        }
        let wait = parse_max_wait(text).map_err(|error| {
            let reason = format!("{}; give 500ms or 2s, or 0s not to wait", error.message);
            BadInput::new("wait", text.as_bytes(), reason)
        })?;
        self.max_wait = Some(wait);
        Ok(())
    }

    pub(crate) fn set_peek(&mut self, peek: bool) -> Result<(), BadInput> {
        set("peek", &mut self.peek, peek)
    }
}

/// The longest wait that a caller accepts: a duration, or `0s` not to wait.
pub(crate) fn parse_max_wait(text: &str) -> Result<Nanos, GrammarError> {
    match text {
        "0s" => Ok(Nanos::ZERO),
        text => grammar::parse_duration(text),
    }
}

fn set<T: ToString>(field: &str, place: &mut Option<T>, value: T) -> Result<(), BadInput> {
    if place.is_some() {
        let value = value.to_string();
        return Err(BadInput::new(field, value.as_bytes(), "it is given twice"));
    }
    *place = Some(value);
    Ok(())
}
