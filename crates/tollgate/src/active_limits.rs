//! The limits in force, compiled and numbered, and how a replacement follows on them.
//!
//! A limit's number is what its state is found by. A replacement with the name and the algorithm of a limit in force gets
//! its number, and so its state; anything else gets a new one and starts afresh. Must not know: keys, tables, clocks.

use tollgate_core::TokenBucket;
use tollgate_core::limit::{Limit, Quota};
use tollgate_store::{IdentifiedLimit, LimitId};

use crate::limit_name::LimitName;

/// One limit in force.
#[derive(Clone, Debug)]
pub(crate) struct ActiveLimit {
    pub(crate) name: LimitName,
    pub(crate) identified: IdentifiedLimit,
}

/// All limits in force at one time, in the order they were written down.
#[derive(Debug)]
pub(crate) struct ActiveLimits {
    list: Box<[ActiveLimit]>,
    /// The limits as the store's shorter way takes them, if all of them are token buckets.
    buckets: Option<Box<[(LimitId, TokenBucket)]>>,
}

impl ActiveLimits {
    /// The limits after `before`, which is empty for a limiter's first. `number` hands out the
    /// number of a limit that inherits none.
    pub(crate) fn from_limits<E>(
        before: &[ActiveLimit],
        limits: Vec<(LimitName, Limit)>,
        mut number: impl FnMut(&LimitName) -> Result<LimitId, E>,
    ) -> Result<Self, E> {
        let list = limits.into_iter().map(|(name, limit)| {
            let heir = before
                .iter()
                .filter(|old| old.name == name)
                .find_map(|old| Some((old.identified.id, inherit(&old.identified.limit, limit)?)));
            let (id, limit) = match heir {
                Some(heir) => heir,
                None => (number(&name)?, limit),
            };
            let ruled = IdentifiedLimit { id, limit };
            Ok(ActiveLimit {
                name,
                identified: ruled,
            })
        });
        let list = list.collect::<Result<Box<[ActiveLimit]>, E>>()?;
        let bucket = |rule: &ActiveLimit| match rule.identified.limit.quota() {
            Quota::TokenBucket(quota) => Some((rule.identified.id, *quota)),
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

    pub(crate) fn list(&self) -> &[ActiveLimit] {
        &self.list
    }

    /// The only limit, if it is a token bucket: the store has a shorter way for it.
    pub(crate) fn single_bucket(&self) -> Option<SingleBucket> {
        match &*self.list {
            [rule] => match rule.identified.limit.quota() {
                Quota::TokenBucket(quota) => Some(SingleBucket {
                    id: rule.identified.id,
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
pub(crate) struct SingleBucket {
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
