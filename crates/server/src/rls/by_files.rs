//! Decided by files of envoyproxy/ratelimit.
//!
//! Must not know: policies of ours, protobuf.

use tollgate_core::{Nanos, Outcome};
use tollgate_engine::envoy::Decided;
use tollgate_http::{Standing, Words};
use tollgate_policy::envoy::{Code, DescriptorStatus, MAX_DESCRIPTORS, Request};
use tollgate_store::Clock;

use super::Refused;
use super::labels::OfVersion;
use super::said::{Limit, Said, Status};
use crate::app::App;
use tollgate_service::with_header_fields;

impl<C: Clock> App<C> {
    pub(super) async fn decide_by_files<T>(
        &self,
        request: &Request<'_>,
        see: impl FnOnce(&Said<'_>) -> T + Send,
    ) -> Result<T, Refused> {
        let engine = &self.rls.engine;
        let see = |decided: &Decided<'_>| self.say_of_files(decided, see);
        Ok(if self.service.has_fleet() {
            engine.decide_together(request, see).await?
        } else {
            engine.decide(request, see)?
        })
    }

    fn say_of_files<T>(&self, decided: &Decided<'_>, see: impl FnOnce(&Said<'_>) -> T) -> T {
        let mut statuses = [Status::default(); MAX_DESCRIPTORS];
        let answered = decided.reply.statuses();
        for (place, status) in statuses.iter_mut().zip(answered) {
            *place = status_of(status);
        }
        let statuses = statuses.get(..answered.len()).unwrap_or_default();
        let labels = self
            .rls
            .labels
            .of(decided.generation, decided.plan.policy().rules().len());
        let metadata = decided.reply.metadata();
        with_header_fields(|words| {
            match answered.len() {
                0..=2 => self.word_files::<2>(decided, &labels, words),
                3..=8 => self.word_files::<8>(decided, &labels, words),
                _ => self.word_files::<MAX_DESCRIPTORS>(decided, &labels, words),
            }
            see(&Said {
                overall: decided.reply.overall,
                statuses,
                words,
                metadata: metadata.as_ref(),
                wait: Nanos::ZERO,
            })
        })
    }

    /// The header fields: every rule that is enforced, and when to come back. There are at most `N` descriptors.
    fn word_files<const N: usize>(
        &self,
        decided: &Decided<'_>,
        labels: &OfVersion,
        words: &mut Words,
    ) {
        let is_over = decided.reply.overall == Code::OverLimit;
        let mut standings: [Option<Standing<'_>>; N] = [None; N];
        let mut count = 0;
        let mut longest = Nanos::ZERO;
        for (index, status) in decided.reply.statuses().iter().enumerate() {
            let denies = is_over && status.code == Code::OverLimit;
            let until_reset = Nanos::from_secs(status.until_reset.unwrap_or(0));
            if denies {
                longest = longest.max(until_reset);
            }
            let rule = decided.plan.rule(index).filter(|rule| !rule.shadow_mode);
            let (Some(limit), Some(label)) = (
                status.current_limit,
                rule.and_then(|rule| labels.of_rule(rule)),
            ) else {
                continue;
            };
            let outcome = if denies {
                Outcome::Deny {
                    retry_after: until_reset,
                }
            } else {
                Outcome::Allow
            };
            let standing = Standing::new(
                label,
                outcome,
                &tollgate_core::Status {
                    limit: limit.requests_per_unit.into(),
                    remaining: status.limit_remaining.into(),
                    reset_after: until_reset,
                },
            );
            if let Some(place) = standings.get_mut(count) {
                *place = Some(standing);
                count += 1;
            }
        }
        let outcome = if is_over {
            Outcome::Deny {
                retry_after: longest,
            }
        } else {
            Outcome::Allow
        };
        let mut there = standings.into_iter().flatten();
        let Some(first) = there.next() else {
            return self.word(outcome, &[], words);
        };
        let mut list = [first; N];
        for (place, standing) in list.iter_mut().skip(1).zip(there) {
            *place = standing;
        }
        let list = list.get(..count).unwrap_or_default();
        self.word(outcome, list, words);
    }
}

/// One status as it is sent.
pub(super) fn status_of<'a>(status: &DescriptorStatus<'a>) -> Status<'a> {
    Status {
        code: status.code,
        limit: status.current_limit.map(|limit| Limit {
            requests_per_unit: limit.requests_per_unit,
            unit: limit.unit.number(),
            name: limit.name,
        }),
        remaining: status.limit_remaining,
        until_reset: status.until_reset,
    }
}
