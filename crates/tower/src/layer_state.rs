//! What all clones of a layer share, and the decision on one request.
//!
//! Must not know: futures of inner services, bodies.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use tollgate_service::{
    Attributes as _, CheckMode, CheckOptions, Clock, CreditOffer, OpenRequest, Outcome,
    OverloadTicket, RateLimitService, Refusal, Shed, Transport, Verdict, WaitPermit, WaitQueueFull,
    with_header_fields,
};

use crate::decision_info::DecisionInfo;
use crate::overload::OverloadTurn;
use crate::refusal::{refuse, refuse_wait};
use crate::request::{LayerAttributes, RequestHead, RequestSettings};
use crate::response_fields::ResponseFields;

/// What all clones of a layer share.
pub(crate) struct LayerState<C> {
    pub(crate) service: Arc<RateLimitService<C>>,
    pub(crate) settings: RequestSettings,
    /// Whether responses get a [`DecisionInfo`].
    pub(crate) reports_decisions: bool,
    /// Values that live as long as the layer: the watcher of the policy file, the tasks of a fleet node.
    pub(crate) kept_alive: Mutex<Vec<Box<dyn Send>>>,
    /// Whether a request without an address was logged.
    pub(crate) has_warned: AtomicBool,
}

/// The decision on a request.
pub(crate) enum Decision<C: Clock> {
    Refused(Box<Response<Bytes>>),
    Admitted(LayerAdmission<C>),
}

/// An admitted request.
pub(crate) struct LayerAdmission<C: Clock> {
    /// What has to be settled, if anything. In a box, because most requests have nothing to settle.
    pub(crate) request: Option<Box<OpenRequest<C>>>,
    pub(crate) fields: ResponseFields,
    /// What the response says of the decision.
    pub(crate) info: Option<Box<DecisionInfo>>,
    /// How long the request waits first, and its place in the wait queue.
    pub(crate) wait: Option<Box<(Duration, WaitPermit)>>,
    /// How the request gets a place under the adaptive concurrency limit afterwards, if it has none yet.
    pub(crate) overload: Option<Box<OverloadTurn>>,
}

impl<C: Clock> Decision<C> {
    fn refused(mut response: Response<Bytes>, info: Option<Box<DecisionInfo>>) -> Self {
        if let Some(info) = info {
            response.extensions_mut().insert(*info);
        }
        Self::Refused(Box::new(response))
    }
}

impl<C: Clock + 'static> LayerState<C> {
    /// Decides at once. `None`, without a decision, if the decision may have to wait for a store, or if the wait queue is full.
    #[inline(always)]
    pub(crate) fn decide_local(&self, head: RequestHead<'_>) -> Option<Decision<C>> {
        if self.service.fleet().is_some() || self.service.saturation().is_full() {
            return None;
        }
        let is_grpc = head.is_grpc();
        let mut attributes = head.attributes(&self.settings);
        self.prepare(&mut attributes);
        let ticket = match self.check_overload(head, &attributes) {
            Ok(ticket) => ticket,
            Err(shed) => return Some(Decision::refused(self.refuse_shed(shed, is_grpc), None)),
        };
        self.service.renew_due_permits();
        let options = CheckOptions::default();
        let transport = transport(is_grpc);
        let mut verdict = self.service.check_local(transport, &attributes, options)?;
        Some(self.conclude(&mut verdict, is_grpc, ticket, false))
    }

    /// Decides with the fleet, or while the wait queue is full.
    pub(crate) async fn decide(&self, head: RequestHead<'_>) -> Decision<C> {
        let is_grpc = head.is_grpc();
        let mut attributes = head.attributes(&self.settings);
        self.prepare(&mut attributes);
        let ticket = match self.check_overload(head, &attributes) {
            Ok(ticket) => ticket,
            Err(shed) => return Decision::refused(self.refuse_shed(shed, is_grpc), None),
        };
        self.service.renew_due_permits();
        let transport = transport(is_grpc);
        let mut skips_wait = false;
        if self.service.saturation().is_full() {
            let peek = CheckOptions::new(CheckMode::Peek);
            let peeked = self.service.check(transport, &attributes, peek).await;
            if matches!(peeked.outcome(), Outcome::Wait(_)) {
                if let Some(refused) = self.refuse_queue_full(&peeked, is_grpc) {
                    return refused;
                }
                skips_wait = true;
            }
        }
        let options = CheckOptions::default();
        let mut verdict = self.service.check(transport, &attributes, options).await;
        // A request that is let through is charged as others are, and holds its permits. It only does not wait.
        self.conclude(&mut verdict, is_grpc, ticket, skips_wait)
    }

    fn check_overload(
        &self,
        head: RequestHead<'_>,
        attributes: &LayerAttributes<'_>,
    ) -> Result<Option<OverloadTicket>, Shed> {
        let targets = self.settings.overload_targets.as_ref();
        self.service
            .check_overload(attributes, || targets?.find(head))
    }

    /// Resolves values that are sent twice. In place: the attributes are large, and moving them is not free.
    #[inline]
    fn prepare(&self, attributes: &mut LayerAttributes<'_>) {
        if attributes.may_repeat_values(self.service.may_read_cookies())
            && let Some(http) = attributes.http_mut()
        {
            let generation = self.service.engine().generation();
            http.resolve_duplicates(generation.rules().duplicate_rules());
        }
        if attributes.ip().is_none() {
            self.warn_without_address();
        }
    }

    #[cold]
    fn warn_without_address(&self) {
        if !self.has_warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "requests have no client address; limits by ip share one quota: see ConnectInfo and PeerAddress"
            );
        }
    }

    #[inline(always)]
    fn conclude(
        &self,
        verdict: &mut Verdict,
        is_grpc: bool,
        ticket: Option<OverloadTicket>,
        skips_wait: bool,
    ) -> Decision<C> {
        let skips_wait = skips_wait && matches!(verdict.outcome(), Outcome::Wait(_));
        let info = self.report(|| match skips_wait {
            true => DecisionInfo::without_wait(verdict, true),
            false => DecisionInfo::from_verdict(verdict),
        });
        if let Some(refusal) = Refusal::from_verdict(verdict) {
            let response = refuse(&self.service, verdict, refusal, is_grpc);
            return Decision::refused(response, info);
        }
        let wait = match verdict.outcome() {
            Outcome::Wait(wait) if !skips_wait => {
                let ticket = verdict.take_wait_ticket();
                let permit = self.service.acquire_wait(ticket, None);
                Some(Box::new((wait.into(), permit)))
            }
            _ => None,
        };
        let offer = |ticket| self.service.offer_credits(ticket);
        let credits = ticket.as_ref().and_then(offer);
        let admission = LayerAdmission {
            request: self.service.open_request(verdict),
            fields: self.fields(verdict, credits),
            info,
            wait,
            overload: ticket.map(|ticket| Box::new(OverloadTurn::Later(ticket, is_grpc))),
        };
        // A request that waits for a limit takes its place when it starts.
        if admission.overload.is_some() && admission.wait.is_none() {
            return self.take_turn(admission);
        }
        Decision::Admitted(admission)
    }

    /// The refusal of a request that would have to wait. `None` if it is let through.
    fn refuse_queue_full(&self, peeked: &Verdict, is_grpc: bool) -> Option<Decision<C>> {
        self.service.record_saturation();
        match self.service.decide_without_wait(peeked) {
            WaitQueueFull::Refused(refusal) => {
                let info = self.report(|| DecisionInfo::without_wait(peeked, false));
                Some(Decision::refused(refuse_wait(refusal, is_grpc), info))
            }
            WaitQueueFull::LetThrough => None,
        }
    }

    fn report(&self, info: impl FnOnce() -> DecisionInfo) -> Option<Box<DecisionInfo>> {
        self.reports_decisions.then(|| Box::new(info()))
    }

    #[inline(always)]
    fn fields(&self, verdict: &Verdict, credits: Option<CreditOffer>) -> ResponseFields {
        // Templates have no room for credits.
        if credits.is_none()
            && let Some(fields) = self.service.admitted_fields(verdict)
        {
            return ResponseFields::from_admitted(fields);
        }
        with_header_fields(|fields| {
            self.service.fields_with_credits(verdict, credits, fields);
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
