//! The current limits of a limiter with their ids, and which state a replacement inherits.
//!
//! The store finds state by limit id. A replacement with the name and algorithm of a current limit inherits its id and so
//! its state. Any other limit gets a new id and starts empty. Must not know: keys, tables, clocks.

use tollgate_core::TokenBucket;
use tollgate_core::limit::{Limit, Quota};
use tollgate_store::{IdentifiedLimit, LimitId};

use crate::limit_name::LimitName;

/// One current limit.
#[derive(Clone, Debug)]
pub(crate) struct ActiveLimit {
    pub(crate) name: LimitName,
    pub(crate) identified: IdentifiedLimit,
}

/// All current limits, in the order in which they were added.
#[derive(Debug)]
pub(crate) struct ActiveLimits {
    list: Box<[ActiveLimit]>,
    /// The arguments of the store's fast path, if all limits are token buckets.
    buckets: Option<Box<[(LimitId, TokenBucket)]>>,
}

impl ActiveLimits {
    /// The limits that follow `before`, which is empty for a new limiter. `number` allocates the id of a limit that inherits
    /// none.
    pub(crate) fn from_limits<E>(
        before: &[ActiveLimit],
        limits: Vec<(LimitName, Limit)>,
        mut number: impl FnMut(&LimitName, &Limit) -> Result<LimitId, E>,
    ) -> Result<Self, E> {
        let list = limits.into_iter().map(|(name, limit)| {
            let inherited = before
                .iter()
                .filter(|old| old.name == name)
                .find_map(|old| Some((old.identified.id, inherit(&old.identified.limit, limit)?)));
            let (id, limit) = match inherited {
                Some(inherited) => inherited,
                None => (number(&name, &limit)?, limit),
            };
            let limit = IdentifiedLimit { id, limit };
            Ok(ActiveLimit {
                name,
                identified: limit,
            })
        });
        let list = list.collect::<Result<Box<[ActiveLimit]>, E>>()?;
        let bucket = |limit: &ActiveLimit| match limit.identified.limit.quota() {
            Quota::TokenBucket(quota) => Some((limit.identified.id, *quota)),
            _ => None,
        };
        Ok(Self {
            buckets: list.iter().map(bucket).collect(),
            list,
        })
    }

    /// The limits for the store's fast path, if all of them are token buckets.
    pub(crate) fn buckets(&self) -> Option<&[(LimitId, TokenBucket)]> {
        self.buckets.as_deref()
    }

    pub(crate) fn list(&self) -> &[ActiveLimit] {
        &self.list
    }

    /// The single limit for the store's fast path, if it is a token bucket.
    pub(crate) fn single_bucket(&self) -> Option<SingleBucket> {
        match &*self.list {
            [limit] => match limit.identified.limit.quota() {
                Quota::TokenBucket(quota) => Some(SingleBucket {
                    id: limit.identified.id,
                    quota: *quota,
                }),
                _ => None,
            },
            _ => None,
        }
    }
}

/// A token bucket that is the single limit of a limiter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SingleBucket {
    pub(crate) id: LimitId,
    pub(crate) quota: TokenBucket,
}

/// `new` adapted to the state of `old`; `None` if its algorithm cannot read that state.
///
/// Debt may be as large as the larger of both quotas allowed. Otherwise the smaller quota would forgive debt.
fn inherit(old: &Limit, new: Limit) -> Option<Limit> {
    new.can_read_state_of(old)
        .then(|| new.sharing_state_with(old))
}
