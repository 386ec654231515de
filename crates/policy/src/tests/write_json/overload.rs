//! Priority classes and the mechanisms against overload as JSON.

use super::value::{Json, list, map, text};
use crate::attributes::Attribute;
use crate::model::{Mode, OverloadSpec, PriorityClassSpec, RetrySource};

pub(super) fn priorities(classes: &[PriorityClassSpec]) -> Option<Json> {
    let class = |class: &PriorityClassSpec| {
        map(vec![
            ("name", Some(text(&class.name.value))),
            ("match", class.matching.as_ref().map(super::conditions)),
        ])
    };
    list(classes.iter().map(class).collect())
}

pub(super) fn overload(spec: &OverloadSpec, retries: &RetrySource) -> Json {
    let mode = |mode| match mode {
        Mode::Enforce => Some(text("enforce")),
        Mode::Shadow => Some(text("shadow")),
        Mode::Off => None,
    };
    let header = match &retries.header {
        Attribute::Header(name) => Some(text(name)),
        _ => None,
    };
    map(vec![
        ("adaptive_concurrency", mode(spec.adaptive_concurrency)),
        ("utilization", mode(spec.utilization)),
        ("reserve", mode(spec.reserve)),
        ("reserved_share", Some(text(spec.reserved_share))),
        ("retries", mode(spec.retries)),
        ("retry_share", Some(text(spec.retry_share))),
        ("credits", mode(spec.credits)),
        ("retry_header", header),
        (
            "retry_client",
            retries.client.as_ref().map(|client| text(&client.value)),
        ),
    ])
}
