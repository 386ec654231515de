//! Templates of the header fields of admissions, without their numbers. Most traffic comes from few keys, and only the remaining
//! quota and the reset differ between the responses for a key.
//!
//! Each thread has a small cache, and a combination of keys has one place in it. A template is used only for exactly its
//! renderer, generation, limits, quotas and keys. It is made when the same keys miss twice in a row at their place, so a flood
//! of keys makes none. Must not know: what keys consist of.

use std::cell::RefCell;

use bytes::Bytes;
use http::HeaderValue;
use tollgate_core::Outcome;
use tollgate_engine::{EnforcementMode, LimitState, Verdict};
use tollgate_http::LimitTemplate;

use super::shared_bytes::copy_to_shared;

/// Places of a thread: a power of two.
const PLACES: usize = 64;
/// The most limits of a template, and the most bytes of each key. A place takes less than 6 kB, because names have at most
/// 160 bytes.
pub(super) const MAX_LIMITS: usize = 4;
const MAX_KEY_LEN: usize = 64;

/// The fields of an admission in the default dialect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdmittedFields {
    /// The value of `RateLimit-Policy`.
    pub policy: HeaderValue,
    /// The value of `RateLimit`: printable ASCII.
    pub limit: Bytes,
}

/// The fields for certain limits and keys.
pub(super) struct FieldTemplate {
    renderer: u64,
    generation: u64,
    limits: Box<[TemplateLimit]>,
    policy: HeaderValue,
    limit: LimitTemplate,
}

/// A limit, its quota and its key.
struct TemplateLimit {
    rule: usize,
    meter: usize,
    quota: usize,
    limit: u64,
    key: Box<[u8]>,
}

/// A place of the cache.
struct Place {
    template: Option<Box<FieldTemplate>>,
    /// The digest of the keys that missed last.
    missed: u64,
}

/// The fields of a verdict, if there is a template or `make` makes one now.
pub(super) fn render(
    renderer: u64,
    verdict: &Verdict,
    make: impl FnOnce() -> Option<(HeaderValue, LimitTemplate)>,
) -> Option<AdmittedFields> {
    thread_local! {
        static TEMPLATES: RefCell<[Place; PLACES]> = const {
            RefCell::new([const { Place { template: None, missed: 0 } }; PLACES])
        };
    }
    let states = verdict.limits();
    if states.len() > MAX_LIMITS || !states.iter().all(is_plain) {
        return None;
    }
    TEMPLATES.with_borrow_mut(|places| {
        let digest = digest(renderer, verdict);
        let index = usize::try_from(digest >> (u64::BITS - PLACES.ilog2())).ok()?;
        let place = places.get_mut(index)?;
        let is_known = |template: &FieldTemplate| template.is_of(renderer, verdict);
        if !place.template.as_deref().is_some_and(is_known) {
            place.remake(digest, || FieldTemplate::new(renderer, verdict, make()?))?;
        }
        let template = place.template.as_deref_mut()?;
        let statuses = states.iter().map(|state| &state.status);
        let limit = template.limit.render(statuses);
        Some(AdmittedFields {
            policy: template.policy.clone(),
            limit: copy_to_shared(limit),
        })
    })
}

impl Place {
    /// Makes the template if its keys missed before, else remembers the miss.
    #[cold]
    fn remake(&mut self, digest: u64, make: impl FnOnce() -> Option<FieldTemplate>) -> Option<()> {
        if self.missed != digest {
            self.missed = digest;
            return None;
        }
        self.template = Some(Box::new(make()?));
        Some(())
    }
}

impl FieldTemplate {
    fn new(
        renderer: u64,
        verdict: &Verdict,
        (policy, limit): (HeaderValue, LimitTemplate),
    ) -> Option<Self> {
        let limits = verdict.limits().iter().map(|state| {
            let key = verdict.key(state);
            (key.len() <= MAX_KEY_LEN).then_some(())?;
            Some(TemplateLimit {
                rule: state.rule_index(),
                meter: state.meter_index(),
                quota: state.quota_index()?,
                limit: state.status.limit,
                key: key.into(),
            })
        });
        Some(Self {
            renderer,
            generation: verdict.generation().number(),
            limits: limits.collect::<Option<_>>()?,
            policy,
            limit,
        })
    }

    /// Whether it is for exactly these limits, quotas and keys.
    fn is_of(&self, renderer: u64, verdict: &Verdict) -> bool {
        let states = verdict.limits();
        let same = |(known, state): (&TemplateLimit, &LimitState)| {
            known.rule == state.rule_index()
                && known.meter == state.meter_index()
                && state.quota_index() == Some(known.quota)
                && known.limit == state.status.limit
                && is_same(&known.key, verdict.key(state))
        };
        self.renderer == renderer
            && self.generation == verdict.generation().number()
            && self.limits.len() == states.len()
            && self.limits.iter().zip(states).all(same)
    }
}

/// Compares keys eight bytes at a time. They are short, and calling the library's comparison takes longer.
#[inline]
fn is_same(known: &[u8], key: &[u8]) -> bool {
    let (known_words, known_rest) = known.as_chunks::<8>();
    let (words, rest) = key.as_chunks::<8>();
    known.len() == key.len()
        && known_words
            .iter()
            .zip(words)
            .all(|(known, word)| known == word)
        && known_rest
            .iter()
            .zip(rest)
            .all(|(known, byte)| known == byte)
}

/// Whether a limit is enforced, admits and has something left, by a quota that is not computed for the request.
fn is_plain(state: &LimitState) -> bool {
    state.enforcement == EnforcementMode::Enforced
        && state.outcome == Outcome::Allow
        && state.status.remaining > 0
        && state.quota_index().is_some()
}

/// A digest of the keys, whose first bits are their place. Keys differ mostly at their ends; keys that meet only replace each
/// other.
fn digest(renderer: u64, verdict: &Verdict) -> u64 {
    let states = verdict.limits().iter();
    states.fold(renderer, |digest, state| {
        let key = verdict.key(state);
        let end = match key.last_chunk::<8>() {
            Some(end) => u64::from_le_bytes(*end),
            None => key
                .iter()
                .fold(0, |word, byte| word << 8 | u64::from(*byte)),
        };
        (digest.rotate_left(23) ^ end).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    })
}
