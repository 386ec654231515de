//! A tower layer for HTTP clients: every request waits for its turn, and refused requests are retried where that is safe.
//!
//! Must not know: how the pacer decides.

mod body;
mod retries;
mod service;

pub use body::PacedBody;
pub use retries::{CloneBody, EmptyBody, NoReplay, ReplayBody};
pub use service::{PacedFuture, PacedService};

use tollgate_store::{Clock, SystemClock};
use tower_layer::Layer;

use crate::request_facts::PartitionHasher;
use crate::settings::PacerSettings;
use crate::shared_pacer::SharedPacer;

/// A layer around a client's service, such as hyper-util's `Client`. All clones share one pacer.
///
/// Requests wait for the limits of their host. A request can carry a [`Route`](crate::Route), a [`Deadline`](crate::Deadline), a
/// [`Priority`](crate::Priority) and a [`RequestCost`](crate::RequestCost) as extensions.
///
/// ```
/// use bytes::Bytes;
/// use http::{Request, Response};
/// use http_body_util::Full;
/// use tollgate_client::{PacerLayer, PacerSettings};
/// use tower::{ServiceBuilder, ServiceExt as _, service_fn};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// // In place of the function: `hyper_util::client::legacy::Client::builder(…).build(…)`.
/// let client = service_fn(|_request: Request<Full<Bytes>>| async {
///     Ok::<_, std::convert::Infallible>(Response::new(Full::<Bytes>::default()))
/// });
/// let client = ServiceBuilder::new()
///     .layer(PacerLayer::new(PacerSettings::default()))
///     .service(client);
/// let request = Request::get("http://api.example.com/items").body(Full::default()).unwrap();
/// assert_eq!(client.oneshot(request).await.unwrap().status(), 200);
/// # }
/// ```
#[derive(Debug)]
pub struct PacerLayer<R = CloneBody, C: Clock + 'static = SystemClock> {
    pacer: SharedPacer<C>,
    replay: R,
    retries_all_methods: bool,
    hasher: PartitionHasher,
}

impl PacerLayer {
    /// A layer with a pacer of its own, for bodies that can be cloned.
    #[must_use]
    pub fn new(settings: PacerSettings) -> Self {
        Self::with_pacer(SharedPacer::new(settings))
    }
}

impl<C: Clock + 'static> PacerLayer<CloneBody, C> {
    /// A layer that shares a pacer with other clients.
    #[must_use]
    pub fn with_pacer(pacer: SharedPacer<C>) -> Self {
        Self {
            hasher: PartitionHasher::new(&pacer),
            pacer,
            replay: CloneBody,
            retries_all_methods: false,
        }
    }
}

impl<R, C: Clock + 'static> PacerLayer<R, C> {
    /// Sets how bodies are sent again: [`CloneBody`], [`EmptyBody`] or [`NoReplay`].
    #[must_use]
    pub fn with_replay<T>(self, replay: T) -> PacerLayer<T, C> {
        PacerLayer {
            pacer: self.pacer,
            replay,
            retries_all_methods: self.retries_all_methods,
            hasher: self.hasher,
        }
    }

    /// Retries refused requests of every method. By default only those of idempotent methods are retried.
    #[must_use]
    pub const fn retry_all_methods(mut self) -> Self {
        self.retries_all_methods = true;
        self
    }

    /// The pacer: what it has learned, and permits for requests that do not go through the layer.
    #[must_use]
    pub const fn pacer(&self) -> &SharedPacer<C> {
        &self.pacer
    }
}

impl<R: Clone, C: Clock + 'static> Clone for PacerLayer<R, C> {
    fn clone(&self) -> Self {
        Self {
            pacer: self.pacer.clone(),
            replay: self.replay.clone(),
            retries_all_methods: self.retries_all_methods,
            hasher: self.hasher.clone(),
        }
    }
}

impl<S, R: Clone, C: Clock + 'static> Layer<S> for PacerLayer<R, C> {
    type Service = PacedService<S, R, C>;

    fn layer(&self, inner: S) -> Self::Service {
        PacedService::new(inner, self.clone())
    }
}
