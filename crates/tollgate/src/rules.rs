//! The limits in force, compiled and numbered, and how a replacement follows on them.
//!
//! A limit's number is what its state is found by. A replacement with the name and the algorithm of a limit in force gets
//! its number, and so its state; anything else gets a new one and starts afresh. Must not know: keys, tables, clocks.

use tollgate_core::TokenBucket;
use tollgate_core::limit::{Limit, Quota};
use tollgate_store::{LimitId, Ruled};

use crate::name::Name;

/// One limit in force.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    pub(crate) name: Name,
    pub(crate) ruled: Ruled,
}

/// All limits in force at one time, in the order they were written down.
#[derive(Debug)]
pub(crate) struct Rules {
    list: Box<[Rule]>,
    /// The limits as the store's shorter way takes them, if all of them are token buckets.
    buckets: Option<Box<[(LimitId, TokenBucket)]>>,
}

impl Rules {
    /// The limits after `before`, which is empty for a limiter's first. `number` hands out the
    /// number of a limit that inherits none.
    pub(crate) fn following<E>(
        before: &[Rule],
        limits: Vec<(Name, Limit)>,
        mut number: impl FnMut(&Name) -> Result<LimitId, E>,
    ) -> Result<Self, E> {
        let list = limits.into_iter().map(|(name, limit)| {
            let heir = before
                .iter()
                .filter(|old| old.name == name)
                .find_map(|old| Some((old.ruled.id, inherit(&old.ruled.limit, limit)?)));
            let (id, limit) = match heir {
                Some(heir) => heir,
                None => (number(&name)?, limit),
            };
            let ruled = Ruled { id, limit };
            Ok(Rule { name, ruled })
        });
        let list = list.collect::<Result<Box<[Rule]>, E>>()?;
        let bucket = |rule: &Rule| match rule.ruled.limit.quota() {
            Quota::TokenBucket(quota) => Some((rule.ruled.id, *quota)),
            _ => None,
        };
        Ok(Self {
            buckets: list.iter().map(bucket).collect(),
            list,
        })
    }

    /// The limits, if all of them are token buckets: the store has a shorter way for them.
    pub(crate) fn buckets(&self) -> Option<&[(LimitId, TokenBucket)]> {
        self.buckets.as_deref()
    }

    pub(crate) fn list(&self) -> &[Rule] {
        &self.list
    }

    /// The only limit, if it is a token bucket: the store has a shorter way for it.
    pub(crate) fn only_bucket(&self) -> Option<Bucket> {
        match &*self.list {
            [rule] => match rule.ruled.limit.quota() {
                Quota::TokenBucket(quota) => Some(Bucket {
                    id: rule.ruled.id,
                    quota: *quota,
                }),
                _ => None,
            },
            _ => None,
        }
    }
}

/// A token bucket that is a limiter's only limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket {
    pub(crate) id: LimitId,
    pub(crate) quota: TokenBucket,
}

/// `new` as it decides on the state that `old` has left; `None` if it is another algorithm, which cannot read it.
///
/// Debt may reach as far as the larger quota has lent. Otherwise the smaller one would forgive it.
fn inherit(old: &Limit, new: Limit) -> Option<Limit> {
    new.can_read_state_of(old)
        .then(|| new.sharing_state_with(old))
}
