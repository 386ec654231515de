//! How a request's body is sent again.
//!
//! Must not know: when a request is retried.

use http_body::Body;

/// Makes the body of a retry.
pub trait ReplayBody<B> {
    /// A body to send again, made before the first is sent. `None` if it cannot be sent twice.
    fn replay(&self, body: &B) -> Option<B>;
}

/// Clones the body: for `Full`, `Empty`, `String` and other bodies that hold all their bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct CloneBody;

impl<B: Clone> ReplayBody<B> for CloneBody {
    fn replay(&self, body: &B) -> Option<B> {
        Some(body.clone())
    }
}

/// Retries only requests without a body, which have the default one: for boxed bodies.
#[derive(Clone, Copy, Debug, Default)]
pub struct EmptyBody;

impl<B: Body + Default> ReplayBody<B> for EmptyBody {
    fn replay(&self, body: &B) -> Option<B> {
        body.is_end_stream().then(B::default)
    }
}

/// Retries nothing: for bodies that can be sent once.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoReplay;

impl<B> ReplayBody<B> for NoReplay {
    fn replay(&self, _body: &B) -> Option<B> {
        None
    }
}
