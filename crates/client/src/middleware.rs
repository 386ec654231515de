//! A middleware for reqwest: every request waits for its turn, and refused requests are retried where that is safe.
//!
//! Must not know: how the pacer decides.

use http::Extensions;
use http::header::CONTENT_TYPE;
use reqwest::{Request, Response, ResponseBuilderExt as _};
use reqwest_middleware::{Error, Middleware, Next};
use tollgate_store::{Clock, SystemClock};

use crate::alarm::Alarm;
use crate::attempts::{
    Exchange, MAX_REASON_WAIT, MAX_REFUSAL_BODY, ReadResponse, has_reason, read_fields, send_paced,
};
use crate::error::ClientError;
use crate::layer::PacedBody;
use crate::request_facts::{PartitionHasher, RequestFacts};
use crate::settings::PacerSettings;
use crate::shared_pacer::SharedPacer;

/// A middleware for clients of `reqwest-middleware`. It does the same as [`PacerLayer`](crate::PacerLayer), and can share
/// a pacer with it.
///
/// A request can carry a [`Route`](crate::Route), a [`Deadline`](crate::Deadline), a [`Priority`](crate::Priority) and a
/// [`RequestCost`](crate::RequestCost): add them with `RequestBuilder::with_extension`. The timeout of reqwest begins when
/// a request is sent, so it does not end a wait; a deadline does. A wait that is too long fails with
/// [`reqwest_middleware::Error::Middleware`], which holds a [`PaceError`](crate::PaceError).
///
/// ```
/// use reqwest_middleware::ClientBuilder;
/// use tollgate_client::{PacerMiddleware, PacerSettings};
///
/// let client = ClientBuilder::new(reqwest::Client::new())
///     .with(PacerMiddleware::new(PacerSettings::default()))
///     .build();
/// # drop(client);
/// ```
#[derive(Debug)]
pub struct PacerMiddleware<C: Clock + 'static = SystemClock> {
    pacer: SharedPacer<C>,
    retries_all_methods: bool,
    hasher: PartitionHasher,
}

impl PacerMiddleware {
    /// A middleware with a pacer of its own.
    #[must_use]
    pub fn new(settings: PacerSettings) -> Self {
        Self::with_pacer(SharedPacer::new(settings))
    }
}

impl<C: Clock + 'static> PacerMiddleware<C> {
    /// A middleware that shares a pacer with other clients.
    #[must_use]
    pub fn with_pacer(pacer: SharedPacer<C>) -> Self {
        Self {
            hasher: PartitionHasher::new(&pacer),
            pacer,
            retries_all_methods: false,
        }
    }

    /// Retries refused requests of every method. By default only those of idempotent methods are retried.
    #[must_use]
    pub const fn retry_all_methods(mut self) -> Self {
        self.retries_all_methods = true;
        self
    }

    /// The pacer: what it has learned.
    #[must_use]
    pub const fn pacer(&self) -> &SharedPacer<C> {
        &self.pacer
    }
}

#[async_trait::async_trait]
impl<C: Clock + 'static> Middleware for PacerMiddleware<C> {
    async fn handle(
        &self,
        request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> reqwest_middleware::Result<Response> {
        let url = request.url();
        // Never the user and password, which come before the host.
        let host = url.host_str().map(|host| match url.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        });
        let headers = request.headers();
        let method = request.method();
        let facts = RequestFacts::new(method, host.as_deref(), headers, extensions, &self.hasher);
        let exchange = RestOfChain { extensions, next };
        let sent = send_paced(
            exchange,
            self.pacer.clone(),
            facts,
            self.retries_all_methods,
            Box::new(request),
        );
        sent.await.map_err(|error| match error {
            ClientError::Pace(error) => Error::middleware(error),
            ClientError::Inner(error) => error,
        })
    }
}

/// The middlewares after this one, and the client.
struct RestOfChain<'a> {
    extensions: &'a mut Extensions,
    next: Next<'a>,
}

impl Exchange for RestOfChain<'_> {
    type Request = Request;
    type Response = Response;
    type Error = Error;

    fn copy(&self, request: &Request) -> Option<Request> {
        // `None` for bodies that are streams.
        request.try_clone()
    }

    async fn prepare_retry(&mut self) -> Result<(), Error> {
        Ok(())
    }

    async fn send(&mut self, request: Request) -> Result<Response, Error> {
        self.next.clone().run(request, self.extensions).await
    }

    async fn read<C: Clock + 'static>(
        response: Response,
        pacer: &SharedPacer<C>,
    ) -> ReadResponse<Response> {
        let mut reader = read_fields(response.headers(), pacer.now());
        let status = response.status().as_u16();
        let response = if has_reason(status, response.headers()) {
            let media_type = response.headers().get(CONTENT_TYPE).cloned();
            let (response, body) = peek_body(response, pacer.alarm(MAX_REASON_WAIT)).await;
            if let Some(media_type) = media_type {
                reader.body(media_type.as_bytes(), &body);
            }
            response
        } else {
            response
        };
        ReadResponse {
            response,
            status,
            info: reader.finish(),
        }
    }
}

/// Reads a body to its end if it is short, and puts it back.
async fn peek_body<C: Clock + 'static>(response: Response, alarm: Alarm<C>) -> (Response, Vec<u8>) {
    let url = response.url().clone();
    let (mut parts, body) = http::Response::from(response).into_parts();
    let mut body = PacedBody::new(body);
    let bytes = body.peek(MAX_REFUSAL_BODY, alarm).await;
    // Only a builder takes the URL, as an extension.
    let with_url = http::Response::builder().url(url).body(());
    if let Ok(with_url) = with_url {
        parts.extensions.extend(with_url.into_parts().0.extensions);
    }
    let response = http::Response::from_parts(parts, reqwest::Body::wrap(body));
    (Response::from(response), bytes)
}
