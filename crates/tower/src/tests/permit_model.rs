//! The hand-over of a request to its stream under loom, in all orders (I-14).
//!
//! The source of the handle is compiled a second time, with loom's locks. A request counts its end.

#[path = "../permit.rs"]
#[expect(clippy::duplicate_mod, reason = "the handle is modelled as it is")]
#[expect(dead_code, reason = "the model does not ask for everything")]
#[expect(unreachable_pub, reason = "it is public where it is used")]
mod permit;

/// What the handle is built of here.
mod sync {
    pub(super) use std::sync::PoisonError;

    pub(super) use loom::sync::{Arc, Mutex};
}

use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use permit::RequestPermit;

/// An open request. Its end releases its permits.
struct Request(Arc<AtomicUsize>);

impl Drop for Request {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A response makes a stream of the connection while the handler's task may close the stream.
fn run(hand_over: fn(RequestPermit, Box<Request>)) {
    loom::model(move || {
        let ends = Arc::new(AtomicUsize::new(0));
        let closes = Arc::new(AtomicUsize::new(0));
        let layer = RequestPermit::default();
        let (handler, seen, closed) = (layer.clone(), Arc::clone(&ends), Arc::clone(&closes));
        let stream = thread::spawn(move || {
            let ends = seen.load(Ordering::SeqCst);
            assert_eq!(ends, 0, "the request ends before its stream");
            drop(handler);
            closed.store(1, Ordering::SeqCst);
        });
        // loom does not see that the number of handles is read. With this it also tries streams that were closed before.
        let _closed = closes.load(Ordering::SeqCst);
        hand_over(layer, Box::new(Request(Arc::clone(&ends))));
        stream.join().unwrap();
        assert_eq!(ends.load(Ordering::SeqCst), 1, "the request ends once");
    });
}

#[test]
fn i14_no_order_of_hand_over_and_close_loses_a_permit_or_releases_it_early() {
    // Without a stream, the request ends with the response.
    run(|permit, request| drop(permit.hand_over(request)));
}

#[test]
#[should_panic = "the request ends before its stream"]
fn the_model_finds_a_layer_that_ends_requests_with_their_responses() {
    run(|_, request| drop(request));
}

#[test]
#[should_panic = "the request ends once"]
fn the_model_finds_a_layer_that_forgets_requests_without_a_stream() {
    run(|permit, request| {
        let not_handed_over = permit.hand_over(request);
        not_handed_over.into_iter().for_each(std::mem::forget);
    });
}
