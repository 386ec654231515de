//! What all clones of a layer share, and the decision on one request.
//!
//! Must not know: futures of inner services, bodies.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use tollgate_service::reload::FileWatcher;
use tollgate_service::{
    Attributes as _, CheckMode, CheckOptions, Clock, OpenRequest, Outcome, OverloadTicket,
    RateLimitService, Refusal, Transport, Verdict, WaitPermit, WaitQueueFull, with_header_fields,
};

use crate::overload::OverloadTurn;
use crate::refusal::{refuse, refuse_shed, refuse_wait};
use crate::request::{LayerAttributes, RequestHead, RequestSettings};
use crate::response_fields::ResponseFields;

/// What all clones of a layer share.
pub(crate) struct LayerState<C> {
    pub(crate) service: Arc<RateLimitService<C>>,
    pub(crate) settings: RequestSettings,
    /// Reloads the policy file while the layer lives. Never locked; it makes the watcher `Sync`.
    pub(crate) _watcher: Option<Mutex<FileWatcher>>,
    /// Whether a request without an address was logged.
    pub(crate) has_warned: AtomicBool,
}

/// The decision on a request.
#[expect(
    clippy::large_enum_variant,
    reason = "most requests are admitted, and a box would be an allocation for each"
)]
pub(crate) enum Decision<C: Clock> {
    Refused(Response<Bytes>),
    Admitted(LayerAdmission<C>),
}

/// An admitted request.
pub(crate) struct LayerAdmission<C: Clock> {
    /// What has to be settled, if anything.
    pub(crate) request: Option<OpenRequest<C>>,
    pub(crate) fields: ResponseFields,
    /// How long the request waits first, and its place in the wait queue.
    pub(crate) wait: Option<(Duration, WaitPermit)>,
    /// How the request gets a place under the adaptive concurrency limit afterwards, if it has none yet.
    pub(crate) overload: Option<OverloadTurn>,
}

impl<C: Clock + 'static> LayerState<C> {
    /// Decides at once. `None`, without a decision, if the decision may have to wait for a store, or if the wait queue is full.
    pub(crate) fn decide_local(&self, head: RequestHead<'_>) -> Option<Decision<C>> {
        if self.service.fleet().is_some() || self.service.saturation().is_full() {
            return None;
        }
        let (attributes, is_grpc) = self.read(head);
        let ticket = match self.service.check_overload(&attributes) {
            Ok(ticket) => ticket,
            Err(shed) => return Some(Decision::Refused(refuse_shed(shed, is_grpc))),
        };
        self.service.renew_due_permits();
        let options = CheckOptions::default();
        let transport = transport(is_grpc);
        let verdict = self.service.check_local(transport, &attributes, options)?;
        Some(self.conclude(verdict, is_grpc, ticket))
    }

    /// Decides with the fleet, or while the wait queue is full.
    pub(crate) async fn decide(&self, head: RequestHead<'_>) -> Decision<C> {
        let (attributes, is_grpc) = self.read(head);
        let ticket = match self.service.check_overload(&attributes) {
            Ok(ticket) => ticket,
            Err(shed) => return Decision::Refused(refuse_shed(shed, is_grpc)),
        };
        self.service.renew_due_permits();
        let transport = transport(is_grpc);
        if self.service.saturation().is_full() {
            let peek = CheckOptions::new(CheckMode::Peek);
            let peeked = self.service.check(transport, &attributes, peek).await;
            if matches!(peeked.outcome(), Outcome::Wait(_)) {
                return self.decide_queue_full(&peeked, is_grpc);
            }
        }
        let options = CheckOptions::default();
        let verdict = self.service.check(transport, &attributes, options).await;
        self.conclude(verdict, is_grpc, ticket)
    }

    fn read<'a>(&'a self, head: RequestHead<'a>) -> (LayerAttributes<'a>, bool) {
        let mut attributes = head.attributes(&self.settings);
        if attributes.http.may_repeat_values() {
            let generation = self.service.engine().generation();
            let rules = generation.rules().duplicate_rules();
            attributes.http.resolve_duplicates(rules);
        }
        if attributes.ip().is_none() && !self.has_warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "requests have no client address; limits by ip share one quota: see ConnectInfo and PeerAddress"
            );
        }
        (attributes, head.is_grpc())
    }

    fn conclude(
        &self,
        mut verdict: Verdict,
        is_grpc: bool,
        ticket: Option<OverloadTicket>,
    ) -> Decision<C> {
        if let Some(refusal) = Refusal::from_verdict(&verdict) {
            return Decision::Refused(refuse(&self.service, &verdict, refusal, is_grpc));
        }
        let wait = match verdict.outcome() {
            Outcome::Wait(wait) => {
                let ticket = verdict.take_wait_ticket();
                Some((wait.into(), self.service.acquire_wait(ticket, None)))
            }
            _ => None,
        };
        let admission = LayerAdmission {
            request: self.service.open_request(&mut verdict),
            fields: self.fields(&verdict),
            wait,
            overload: ticket.map(|ticket| OverloadTurn::Later(ticket, is_grpc)),
        };
        // A request that waits for a limit takes its place when it starts.
        if ticket.is_some() && admission.wait.is_none() {
            return self.take_turn(admission);
        }
        Decision::Admitted(admission)
    }

    /// The decision on a request that would have to wait. Nothing is charged.
    fn decide_queue_full(&self, peeked: &Verdict, is_grpc: bool) -> Decision<C> {
        self.service.record_saturation();
        match self.service.decide_without_wait(peeked) {
            WaitQueueFull::Refused(refusal) => Decision::Refused(refuse_wait(refusal, is_grpc)),
            WaitQueueFull::LetThrough => Decision::Admitted(LayerAdmission {
                request: None,
                fields: self.fields(peeked),
                wait: None,
                overload: None,
            }),
        }
    }

    fn fields(&self, verdict: &Verdict) -> ResponseFields {
        with_header_fields(|fields| {
            self.service.fields(verdict, fields);
            ResponseFields::new(fields)
        })
    }
}

const fn transport(is_grpc: bool) -> Transport {
    match is_grpc {
        true => Transport::Grpc,
        false => Transport::Http,
    }
}

impl<C> fmt::Debug for LayerState<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LayerState")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
