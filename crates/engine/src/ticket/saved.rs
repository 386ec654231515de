//! A ticket as it is saved for a restart: names and ids instead of references into the rules.
//!
//! An item whose limit is gone, or whose quota cannot be told from others, is dropped: its charge stays and its lease expires. So a
//! ticket never refunds what a limit did not charge. Items of requests that wait are not saved either: their place may be behind
//! others. Must not know: where tickets are saved.

use std::hash::Hasher as _;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use siphasher::sip::SipHasher13;
use tollgate_core::concurrency::LeaseId;
use tollgate_core::{Receipt, Timestamp};
use tollgate_policy::rules::MeterRole;
use tollgate_store::IdentifiedLimit;

use super::{Ticket, TicketItem, TicketItemKind};
use crate::generation::Generation;
use crate::sharing::DenialCaching;

/// A ticket without references.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedTicket {
    items: Vec<SavedTicketItem>,
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SavedTicketItem {
    /// The name of the limit.
    limit: Box<str>,
    id: u16,
    /// Tells the quotas of one id apart.
    quota: u64,
    role: SavedRole,
    key: Vec<u8>,
    cost: u64,
    kind: SavedItemKind,
}

impl std::fmt::Debug for SavedTicketItem {
    /// Hides the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SavedTicketItem")
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum SavedRole {
    Main,
    Local,
    Share,
    Spillover,
    Block,
    Distinct,
    Candidate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
enum SavedItemKind {
    Permit { lease: [u64; 2] },
    Estimate { cost: u64, at: u64, mark: u64 },
    Response,
}

impl SavedTicket {
    /// The leases that its holder can release.
    pub fn leases(&self) -> impl Iterator<Item = LeaseId> {
        self.items.iter().filter_map(|item| match item.kind {
            SavedItemKind::Permit { lease } => Some(join(lease)),
            _ => None,
        })
    }
}

impl SavedRole {
    fn new(role: MeterRole) -> Option<Self> {
        Some(match role {
            MeterRole::Main => Self::Main,
            MeterRole::Local => Self::Local,
            MeterRole::Share => Self::Share,
            MeterRole::Spillover => Self::Spillover,
            MeterRole::Block => Self::Block,
            MeterRole::Distinct => Self::Distinct,
            MeterRole::Candidate => Self::Candidate,
            _ => return None,
        })
    }
}

impl From<SavedRole> for MeterRole {
    fn from(role: SavedRole) -> Self {
        match role {
            SavedRole::Main => Self::Main,
            SavedRole::Local => Self::Local,
            SavedRole::Share => Self::Share,
            SavedRole::Spillover => Self::Spillover,
            SavedRole::Block => Self::Block,
            SavedRole::Distinct => Self::Distinct,
            SavedRole::Candidate => Self::Candidate,
        }
    }
}

impl Ticket {
    /// The ticket for a restart; `None` if nothing of it can be settled then.
    #[must_use]
    pub fn save(&self) -> Option<SavedTicket> {
        let saved = self.items.iter().filter(|item| item.wait.is_none());
        let items: Vec<SavedTicketItem> = saved
            .filter_map(|item| {
                let (rule, _) = self.generation.rule(item.rule)?;
                Some(SavedTicketItem {
                    limit: rule.name.clone(),
                    id: item.limit.id.0.get(),
                    quota: quota_digest(&item.limit),
                    role: SavedRole::new(item.role)?,
                    key: self.keys.get(item.key.clone())?.to_vec(),
                    cost: item.cost,
                    kind: match item.kind {
                        TicketItemKind::Permit(id) => SavedItemKind::Permit { lease: split(id) },
                        TicketItemKind::Estimate(receipt) => saved_receipt(receipt),
                        TicketItemKind::Response => SavedItemKind::Response,
                    },
                })
            })
            .collect();
        (!items.is_empty()).then_some(SavedTicket { items })
    }

    /// A saved ticket under these rules; `None` if nothing of it can be settled.
    pub(crate) fn restore(saved: SavedTicket, generation: &Arc<Generation>) -> Option<Self> {
        let (mut items, mut keys) = (Vec::new(), Vec::new());
        for item in saved.items {
            let rule = generation.rule_index(&item.limit);
            let Some((rule, limit)) = rule.zip(find_quota(generation, &item)) else {
                continue;
            };
            let from = keys.len();
            keys.extend_from_slice(&item.key);
            items.push(TicketItem {
                rule,
                limit,
                key: from..keys.len(),
                slot_key: None,
                denial_caching: DenialCaching::Never,
                role: item.role.into(),
                cost: item.cost,
                kind: match item.kind {
                    SavedItemKind::Permit { lease } => TicketItemKind::Permit(join(lease)),
                    SavedItemKind::Estimate { cost, at, mark } => {
                        TicketItemKind::Estimate(receipt(cost, at, mark))
                    }
                    SavedItemKind::Response => TicketItemKind::Response,
                },
                wait: None,
            });
        }
        (!items.is_empty()).then(|| Self {
            generation: Arc::clone(generation),
            items,
            keys,
        })
    }
}

/// The quota that a saved item was charged to: the only one with its id, or the one that is the same.
fn find_quota(generation: &Generation, item: &SavedTicketItem) -> Option<IdentifiedLimit> {
    let quotas = generation.quotas(None).map(|(_, quota)| quota);
    let mut quotas = quotas.filter(|quota| quota.id.0.get() == item.id);
    let first = quotas.next()?;
    let others: Vec<&IdentifiedLimit> = quotas.filter(|other| *other != first).collect();
    if others.is_empty() {
        return Some(*first);
    }
    let all = std::iter::once(first).chain(others);
    all.copied().find(|quota| quota_digest(quota) == item.quota)
}

fn split(LeaseId(id): LeaseId) -> [u64; 2] {
    [id >> 64, id & u128::from(u64::MAX)].map(|half| u64::try_from(half).unwrap_or(0))
}

fn join([high, low]: [u64; 2]) -> LeaseId {
    LeaseId(u128::from(high) << 64 | u128::from(low))
}

fn saved_receipt(receipt: Receipt) -> SavedItemKind {
    let Receipt { cost, at, mark } = receipt;
    let at = at.as_nanos();
    SavedItemKind::Estimate { cost, at, mark }
}

fn receipt(cost: u64, at: u64, mark: u64) -> Receipt {
    let at = Timestamp::from_nanos(at);
    Receipt { cost, at, mark }
}

/// A digest that tells the quotas of one limit apart. Another version may compute another; then an item is dropped if its limit
/// has several quotas.
fn quota_digest(limit: &IdentifiedLimit) -> u64 {
    let mut hasher = SipHasher13::new();
    hasher.write(format!("{:?}", limit.limit).as_bytes());
    hasher.finish()
}
