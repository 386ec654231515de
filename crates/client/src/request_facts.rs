//! What the pacer has to know about an HTTP request: its host, credentials, route, deadline, priority and cost.
//!
//! Must not know: pace, responses.

use std::fmt::{self, Write as _};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use http::header::{AUTHORIZATION, HOST};
use http::request::Parts;
use http::{Extensions, HeaderMap, HeaderValue, Method};
use tollgate_core::Timestamp;
use tollgate_store::{Clock, MAX_KEY_LEN, SharedQuotaStore, StoreKey};

use crate::request::{PaceRequest, Priority, RequestCost};
use crate::shared_pacer::SharedPacer;

/// The fields that identify a caller, and so its quota.
const CREDENTIALS: [&str; 2] = ["x-api-key", "api-key"];

/// The route of a request, as an extension: requests of different routes are paced apart. Use a pattern such as
/// `GET /users/{id}`, not a path with ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route(pub &'static str);

/// The time by which a request has to be sent, as an extension. A request that would wait longer fails at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline(pub Timestamp);

/// Names partitions: the host, and a keyed digest of the credentials, from which nobody can read them. With a store the key is
/// the store's, so that all processes use the same names.
#[derive(Clone)]
pub(crate) enum PartitionHasher {
    Local(RandomState),
    Shared(Arc<dyn SharedQuotaStore>),
}

impl PartitionHasher {
    pub(crate) fn new<C: Clock + 'static>(pacer: &SharedPacer<C>) -> Self {
        match pacer.store_link() {
            Some(link) => Self::Shared(Arc::clone(&link.store)),
            None => Self::Local(RandomState::new()),
        }
    }

    fn digest(&self, credentials: &[&[u8]]) -> u64 {
        match self {
            Self::Local(state) => state.hash_one(credentials),
            Self::Shared(store) => {
                let parts: Vec<&[u8]> = credentials.to_vec();
                // Of longer credentials, the first kilobyte of the first tells callers apart.
                let first = parts.first().copied().unwrap_or_default();
                let cut = first.get(..MAX_KEY_LEN).unwrap_or(first);
                let key = StoreKey::from_parts(&parts).or_else(|_| StoreKey::new(cut));
                key.map_or(0, |key| store.digest(key))
            }
        }
    }
}

impl fmt::Debug for PartitionHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PartitionHasher")
    }
}

/// The facts about a request that hold for all its attempts.
pub(crate) struct RequestFacts {
    partition: String,
    route: &'static str,
    cost: RequestCost,
    priority: Priority,
    pub(crate) deadline: Option<Timestamp>,
    pub(crate) is_idempotent: bool,
}

impl RequestFacts {
    pub(crate) fn new(
        method: &Method,
        host: Option<&str>,
        headers: &HeaderMap,
        extensions: &Extensions,
        hasher: &PartitionHasher,
    ) -> Self {
        Self {
            partition: partition(host, headers, hasher),
            route: extensions.get::<Route>().map_or("", |route| route.0),
            cost: extensions.get().copied().unwrap_or_default(),
            priority: extensions.get().copied().unwrap_or_default(),
            deadline: extensions.get::<Deadline>().map(|deadline| deadline.0),
            is_idempotent: crate::retry::is_idempotent(method.as_str()),
        }
    }

    /// The facts about a request whose extensions are its own.
    pub(crate) fn of_parts(parts: &Parts, hasher: &PartitionHasher) -> Self {
        let host = parts.uri.authority().map(|authority| {
            // Never the user and password before the `@`.
            let text = authority.as_str();
            text.rsplit_once('@').map_or(text, |(_, host)| host)
        });
        Self::new(
            &parts.method,
            host,
            &parts.headers,
            &parts.extensions,
            hasher,
        )
    }

    pub(crate) const fn as_pace_request(&self, attempt: u32) -> PaceRequest<'_> {
        let mut request = PaceRequest::new(self.partition.as_str())
            .with_route(self.route)
            .with_cost(self.cost)
            .with_priority(self.priority);
        request.deadline = self.deadline;
        request.is_retry = attempt > 1;
        request
    }
}

fn partition(host: Option<&str>, headers: &HeaderMap, hasher: &PartitionHasher) -> String {
    let header = || headers.get(HOST).and_then(|host| host.to_str().ok());
    let mut name = host
        .or_else(header)
        .unwrap_or_default()
        .to_ascii_lowercase();
    let named = CREDENTIALS.iter().filter_map(|name| headers.get(*name));
    let credentials = headers.get(AUTHORIZATION).into_iter().chain(named);
    let credentials: Vec<&[u8]> = credentials.map(HeaderValue::as_bytes).collect();
    if !credentials.is_empty() {
        // Writing to a String cannot fail.
        let _written = write!(name, "#{:016x}", hasher.digest(&credentials));
    }
    name
}
