//! Which bucket a request belongs to: its host and route at first, and the bucket or resource that the server names later.
//!
//! Bounded: the bucket that was unused longest makes room for a new one. Must not know: pace.

use std::collections::HashMap;

use tollgate_core::Timestamp;
use tollgate_http::{RateLimitInfo, Scope};

use super::Bucket;
use super::hidden_quota::HiddenQuotaSettings;
use crate::settings::PacerSettings;

/// Longer names are cut: nobody can make a key of any length.
const MAX_NAME_LEN: usize = 256;

/// A bucket of the table. The generation distinguishes buckets that use a slot one after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct BucketId {
    slot: usize,
    generation: u32,
}

#[derive(Debug)]
struct TableSlot {
    generation: u32,
    bucket: Bucket,
    /// Whether it is in the list of buckets with waiters.
    is_busy: bool,
}

/// The buckets, at most `max`.
#[derive(Debug)]
pub(super) struct PartitionTable {
    slots: Vec<TableSlot>,
    /// The bucket of a route, under the name that the client gives it.
    routes: HashMap<Box<str>, BucketId>,
    busy: Vec<BucketId>,
    /// Hosts that refuse every route, and until when.
    blocked_hosts: HashMap<Box<str>, Timestamp>,
    max: usize,
    settings: HiddenQuotaSettings,
}

impl PartitionTable {
    pub(super) fn new(settings: &PacerSettings) -> Self {
        Self {
            slots: Vec::new(),
            routes: HashMap::new(),
            busy: Vec::new(),
            blocked_hosts: HashMap::new(),
            max: settings.max_partitions.max(1),
            settings: settings.hidden_quota(),
        }
    }

    /// The bucket of a request.
    pub(super) fn find(&mut self, partition: &str, route: &str, now: Timestamp) -> BucketId {
        if route.is_empty()
            && let Some(id) = self.live(partition)
        {
            return id;
        }
        let name = join(partition, route);
        self.find_or_insert(&name, now)
    }

    /// The bucket that a response names, from now on also for the route of `from`.
    pub(super) fn rebind(
        &mut self,
        from: BucketId,
        info: &RateLimitInfo,
        now: Timestamp,
    ) -> BucketId {
        let label = match (&info.bucket, &info.resource) {
            _ if info.scope == Some(Scope::Global) => return from,
            (Some(bucket), _) => bucket,
            (None, Some(resource)) => resource,
            (None, None) => return from,
        };
        let Some(bucket) = self.get_mut(from) else {
            return from;
        };
        let name = bucket.name();
        let target = join(host(name), &format!("={label}"));
        if name == target || name.contains(" =") {
            return from;
        }
        let route: Box<str> = name.into();
        let id = self.find_or_insert(&target, now);
        self.routes.insert(route, id);
        id
    }

    pub(super) fn get_mut(&mut self, id: BucketId) -> Option<&mut Bucket> {
        let slot = self.slots.get_mut(id.slot)?;
        (slot.generation == id.generation).then_some(&mut slot.bucket)
    }

    /// Sends nothing to the host of a bucket before this time, by any route. Returns the buckets that it has so far.
    pub(super) fn block_host(
        &mut self,
        id: BucketId,
        until: Timestamp,
        now: Timestamp,
    ) -> Vec<BucketId> {
        let Some(name) = self
            .get_mut(id)
            .map(|bucket| host(bucket.name()).to_owned())
        else {
            return Vec::new();
        };
        self.blocked_hosts.retain(|_, end| *end > now);
        if self.blocked_hosts.len() < self.max {
            let end = self.blocked_hosts.entry(name.as_str().into());
            let end = end.or_insert(until);
            *end = until.max(*end);
        }
        let mut blocked = Vec::new();
        for (index, slot) in self.slots.iter_mut().enumerate() {
            if host(slot.bucket.name()) == name {
                slot.bucket.block(until);
                blocked.push(BucketId {
                    slot: index,
                    generation: slot.generation,
                });
            }
        }
        blocked
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Bucket> {
        self.slots.iter().map(|slot| &slot.bucket)
    }

    /// The buckets with waiters.
    pub(super) fn busy(&self) -> impl Iterator<Item = &Bucket> {
        let slot = |id: &BucketId| self.slots.get(id.slot).map(|slot| &slot.bucket);
        self.busy.iter().filter_map(slot)
    }

    /// Records that a bucket has waiters.
    pub(super) fn mark_busy(&mut self, id: BucketId) {
        if let Some(slot) = self.slots.get_mut(id.slot)
            && slot.generation == id.generation
            && !slot.is_busy
        {
            slot.is_busy = true;
            self.busy.push(id);
        }
    }

    /// Takes the list of buckets with waiters.
    pub(super) fn take_busy(&mut self) -> Vec<BucketId> {
        let busy = std::mem::take(&mut self.busy);
        for id in &busy {
            if let Some(slot) = self.slots.get_mut(id.slot) {
                slot.is_busy = false;
            }
        }
        busy
    }

    fn find_or_insert(&mut self, name: &str, now: Timestamp) -> BucketId {
        if let Some(id) = self.live(name) {
            return id;
        }
        let mut bucket = Bucket::new(name, self.settings, now);
        if let Some(until) = self.blocked_hosts.get(host(name)) {
            bucket.block(*until);
        }
        let id = if self.slots.len() < self.max {
            self.slots.push(TableSlot {
                generation: 0,
                bucket,
                is_busy: false,
            });
            BucketId {
                slot: self.slots.len() - 1,
                generation: 0,
            }
        } else {
            self.replace_oldest(bucket)
        };
        if self.routes.len() >= self.max.saturating_mul(4) {
            let slots = &self.slots;
            self.routes.retain(|_, id| {
                slots
                    .get(id.slot)
                    .is_some_and(|slot| slot.generation == id.generation)
            });
        }
        if self.routes.len() < self.max.saturating_mul(4) {
            self.routes.insert(name.into(), id);
        }
        id
    }

    fn live(&self, name: &str) -> Option<BucketId> {
        let id = *self.routes.get(name)?;
        let slot = self.slots.get(id.slot)?;
        (slot.generation == id.generation).then_some(id)
    }

    /// Reuses the slot that was unused longest. If every bucket is in use, requests share the oldest one.
    fn replace_oldest(&mut self, bucket: Bucket) -> BucketId {
        let slots = self.slots.iter_mut().enumerate();
        let oldest = slots.min_by_key(|(_, slot)| (!slot.bucket.is_idle(), slot.bucket.last_used));
        let Some((index, slot)) = oldest else {
            return BucketId {
                slot: 0,
                generation: 0,
            };
        };
        if slot.bucket.is_idle() {
            slot.generation = slot.generation.wrapping_add(1);
            slot.is_busy = false;
            slot.bucket = bucket;
        }
        BucketId {
            slot: index,
            generation: slot.generation,
        }
    }
}

/// The part of a bucket's name before the route: host and credentials.
fn host(name: &str) -> &str {
    name.split(' ').next().unwrap_or(name)
}

/// A name that no other pair has: hosts have no spaces.
fn join(partition: &str, route: &str) -> String {
    let mut name = partition.replace(' ', "_");
    if !route.is_empty() {
        name.push(' ');
        name.push_str(route);
    }
    let end = name.floor_char_boundary(MAX_NAME_LEN);
    name.truncate(end);
    name
}
