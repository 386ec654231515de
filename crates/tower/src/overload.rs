//! Which target a request goes to, and how an admitted request gets its place under the adaptive concurrency limit.
//!
//! Must not know: which requests are shed, how places are given.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Response, Uri};
use tollgate_service::{
    Clock, OverloadControl, OverloadEntry, OverloadPermit, OverloadTicket, OverloadWait, Shed,
    with_header_fields,
};

use crate::layer_state::{Decision, LayerAdmission, LayerState};
use crate::refusal::refuse_shed;
use crate::request::RequestHead;
use crate::response_fields::ResponseFields;

/// Finds what a request goes to, if the program knows it.
type FindTarget = Box<dyn Fn(&HeaderMap, &Uri) -> Option<Arc<OverloadControl>> + Send + Sync>;

/// Finds the target of a request.
pub(crate) struct TargetFinder(FindTarget);

impl TargetFinder {
    pub(crate) fn new(
        find: impl Fn(&HeaderMap, &Uri) -> Option<Arc<OverloadControl>> + Send + Sync + 'static,
    ) -> Self {
        Self(Box::new(find))
    }

    pub(crate) fn find(&self, head: RequestHead<'_>) -> Option<Arc<OverloadControl>> {
        (self.0)(head.headers, head.uri)
    }
}

impl fmt::Debug for TargetFinder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TargetFinder")
    }
}

/// How a request gets its place. The flag says whether it is a gRPC call.
pub(crate) enum OverloadTurn {
    /// It asks for a place when it starts.
    Later(OverloadTicket, bool),
    /// It waits in the queue.
    Waiting(OverloadWait, bool),
}

impl<C: Clock> LayerAdmission<C> {
    /// Whether the request need not wait for anything.
    pub(crate) const fn starts_now(&self) -> bool {
        self.wait.is_none() && self.overload.is_none()
    }
}

impl<C: Clock + 'static> LayerState<C> {
    /// Asks for the place of an admitted request. If it is shed, its charges are given back.
    pub(crate) fn take_turn(&self, mut admission: LayerAdmission<C>) -> Decision<C> {
        let (ticket, is_grpc) = match admission.overload.take().map(|turn| *turn) {
            Some(OverloadTurn::Later(ticket, is_grpc)) => (ticket, is_grpc),
            waiting => {
                admission.overload = waiting.map(Box::new);
                return Decision::Admitted(admission);
            }
        };
        match self.service.enter_overload(&ticket) {
            OverloadEntry::Started(permit) => self.hold(&mut admission, permit),
            OverloadEntry::Waiting(wait) => {
                admission.overload = Some(Box::new(OverloadTurn::Waiting(wait, is_grpc)));
            }
            OverloadEntry::Shed(shed) => {
                return Decision::Refused(Box::new(self.refuse_shed(shed, is_grpc)));
            }
        }
        Decision::Admitted(admission)
    }

    /// Waits for the place of an admitted request, if it has none yet. Dropping the future gives everything back.
    pub(crate) async fn wait_for_turn(
        &self,
        admission: LayerAdmission<C>,
    ) -> Result<LayerAdmission<C>, Box<Response<Bytes>>> {
        let mut admission = match self.take_turn(admission) {
            Decision::Admitted(admission) => admission,
            Decision::Refused(response) => return Err(response),
        };
        let turn = admission.overload.take().map(|turn| *turn);
        if let Some(OverloadTurn::Waiting(wait, is_grpc)) = turn {
            let waited = wait.wait().await;
            let permit = waited.map_err(|shed| Box::new(self.refuse_shed(shed, is_grpc)))?;
            self.hold(&mut admission, permit);
        }
        Ok(admission)
    }

    /// The refusal of a request that is shed, with the credits of its client.
    pub(crate) fn refuse_shed(&self, shed: Shed, is_grpc: bool) -> Response<Bytes> {
        let mut response = refuse_shed(shed, is_grpc);
        if shed.credits.is_some() {
            with_header_fields(|fields| {
                if self.service.shed_fields(&shed, fields) {
                    ResponseFields::new(fields).merge_into(response.headers_mut());
                }
            });
        }
        response
    }

    fn hold(&self, admission: &mut LayerAdmission<C>, permit: OverloadPermit) {
        let request = admission.request.take();
        admission.request = Some(self.service.hold_overload_permit(request, permit));
    }
}
