//! A handle on the permits of a request, for streams that outlive their response.
//!
//! Must not know: which permits there are, how they are released.

use std::fmt;

use http::{Method, StatusCode};

use super::sync::{Arc, Mutex, PoisonError};

/// The permits of a request with a `concurrency` limit. The layer puts it into the request's extensions.
///
/// A stream that hyper upgrades keeps it by itself. If your stream comes from elsewhere, move the handle into the task that serves
/// the stream: after an upgrade (101, or success of CONNECT) the permits are released when the last clone is dropped. If nobody
/// keeps one, they are released with the response, as for every other request.
///
/// ```
/// use axum::Extension;
/// use axum::response::Response;
/// use tollgate_tower::RequestPermit;
///
/// # async fn serve_other_stream() {}
/// // `None` if no limit of concurrency applies.
/// async fn handler(permit: Option<Extension<RequestPermit>>) -> Response {
///     tokio::spawn(async move {
///         serve_other_stream().await;
///         drop(permit);
///     });
/// #   Response::default()
///     // … 101 Switching Protocols
/// }
/// ```
#[derive(Clone, Default)]
pub struct RequestPermit {
    held: Arc<Mutex<Option<Box<dyn Send>>>>,
}

impl RequestPermit {
    /// Gives the request to the handler's clones of this handle. Returns it if there are none.
    pub(crate) fn hand_over<T: Send + 'static>(self, request: Box<T>) -> Option<Box<T>> {
        if Arc::strong_count(&self.held) == 1 {
            return Some(request);
        }
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        *held = Some(request);
        None
    }
}

impl fmt::Debug for RequestPermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestPermit").finish_non_exhaustive()
    }
}

/// Whether a response makes a stream of the connection.
pub(crate) fn is_upgrade(is_connect: bool, status: StatusCode) -> bool {
    status == StatusCode::SWITCHING_PROTOCOLS || (is_connect && status.is_success())
}

/// Whether a successful response to this method makes a stream of the connection.
pub(crate) fn is_connect(method: &Method) -> bool {
    *method == Method::CONNECT
}
