//! The attempts of one request: wait for its turn, send it, report the response, and decide whether to send it again.
//!
//! The tower layer and the middleware for reqwest share it. Must not know: how the pacer decides, which client sends.

use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue};
use tollgate_core::{Nanos, Timestamp};
use tollgate_http::{RateLimitInfo, ResponseReader};
use tollgate_store::Clock;

use crate::error::ClientError;
use crate::request_facts::RequestFacts;
use crate::retry::RetryDecision;
use crate::shared_pacer::{PacePermit, SharedPacer};
use crate::shared_quota::SharedTake;

/// The longest body of a refusal that is read for its reason.
pub(crate) const MAX_REFUSAL_BODY: usize = 16_384;

/// How long a response waits for a body that says why it is a refusal. The head is enough to obey it.
pub(crate) const MAX_REASON_WAIT: Nanos = Nanos::from_secs(1);

/// A client that sends requests and reads responses.
pub(crate) trait Exchange {
    type Request: Send;
    type Response: Send;
    type Error: Send;

    /// A copy to send again, made before the request is sent. `None` if it cannot be sent twice.
    fn copy(&self, request: &Self::Request) -> Option<Self::Request>;

    /// Waits until the client can send another request. Before the first it can.
    fn prepare_retry(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Sends a request.
    fn send(
        &mut self,
        request: Self::Request,
    ) -> impl Future<Output = Result<Self::Response, Self::Error>> + Send;

    /// Reads the status and the limits out of a response, and the reason out of a refusal's body, if it arrives within
    /// [`MAX_REASON_WAIT`]. The response stays complete.
    fn read<C: Clock + 'static>(
        response: Self::Response,
        pacer: &SharedPacer<C>,
    ) -> impl Future<Output = ReadResponse<Self::Response>> + Send;
}

/// A response, and what it says about limits.
pub(crate) struct ReadResponse<R> {
    pub(crate) response: R,
    pub(crate) status: u16,
    pub(crate) info: RateLimitInfo,
}

/// Sends a request until it is not refused, or a retry is not allowed.
///
/// Thousands of these futures may wait at the same time. So the request is in a box, and what is needed only to send it is made afterwards.
pub(crate) async fn send_paced<E: Exchange, C: Clock + 'static>(
    mut exchange: E,
    pacer: SharedPacer<C>,
    facts: RequestFacts,
    retries_all_methods: bool,
    mut request: Box<E::Request>,
) -> Result<E::Response, ClientError<E::Error>> {
    let may_retry = facts.is_idempotent || retries_all_methods;
    let mut attempt = 1;
    loop {
        let acquired = pacer.acquire_shared(&facts.as_pace_request(attempt)).await;
        let permit = acquired.map_err(ClientError::Pace)?;
        let copy = may_retry.then(|| exchange.copy(&request)).flatten();
        let sent = send_once(
            &mut exchange,
            &pacer,
            permit,
            *request,
            copy,
            (&facts, attempt),
        );
        match Box::pin(sent).await.map_err(ClientError::Inner)? {
            (_, Some(copy)) => *request = copy,
            (response, None) => return Ok(response),
        }
        attempt += 1;
    }
}

/// Sends a request that has its permit, and reports the response. Returns the copy if it has to be sent again.
async fn send_once<E: Exchange, C: Clock + 'static>(
    exchange: &mut E,
    pacer: &SharedPacer<C>,
    (mut permit, shared): (PacePermit<C>, Option<SharedTake>),
    request: E::Request,
    copy: Option<E::Request>,
    (facts, attempt): (&RequestFacts, u32),
) -> Result<(E::Response, Option<E::Request>), E::Error> {
    if attempt > 1 {
        exchange.prepare_retry().await?;
    }
    permit.mark_sent();
    let response = match exchange.send(request).await {
        Ok(response) => response,
        Err(error) => {
            permit.fail();
            return Err(error);
        }
    };
    let read = E::read(response, pacer).await;
    let refusal = permit.finish(read.status, &read.info);
    let decision = match &refusal {
        // If the retry could not be sent in time, the refusal says more than an error.
        Some(refusal)
            if copy.is_some() && !pacer.is_hopeless(&facts.as_pace_request(attempt + 1)) =>
        {
            pacer.decide_retry(refusal, attempt, facts.deadline)
        }
        _ => RetryDecision::GiveUp,
    };
    let decision = pacer
        .report_shared(shared, &read.info, refusal.as_ref(), decision)
        .await;
    let copy = copy.filter(|_| decision == RetryDecision::Retry);
    Ok((read.response, copy))
}

/// A reader that has read the header fields of a response.
pub(crate) fn read_fields(headers: &HeaderMap, now: Timestamp) -> ResponseReader {
    let mut reader = ResponseReader::new(now);
    for (name, value) in headers {
        reader.field(name.as_str(), value.as_bytes());
    }
    reader
}

/// Whether a response may be a refusal whose body says why: JSON that is not known to be long. Many bodies have no known length: those
/// in chunks, over HTTP/2, and after decompression.
pub(crate) fn has_reason(status: u16, headers: &HeaderMap) -> bool {
    let length = headers.get(CONTENT_LENGTH);
    let length = length.and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    matches!(status, 403 | 429 | 503 | 529)
        && is_json(headers)
        && length.is_none_or(|length| (1..=MAX_REFUSAL_BODY).contains(&length))
}

/// Whether the body may be one that [`ResponseReader::body`] reads.
fn is_json(headers: &HeaderMap) -> bool {
    let media_type = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    media_type.is_some_and(|text| {
        text.to_ascii_lowercase()
            .windows(4)
            .any(|part| part == b"json")
    })
}
