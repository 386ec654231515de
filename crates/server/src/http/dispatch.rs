//! Dispatches a request to its endpoint, for our own listener and for programs that have their own HTTP server.
//!
//! Must not know: sockets, connections, timeouts, how anything is decided.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::CONTENT_TYPE;
use hyper::{Method, Request, Response, StatusCode};
use tokio::io::{AsyncRead, AsyncWrite};
use tollgate_store::Clock;

use crate::http::bad_input::{BadInput, echo};
use crate::http::cross_site::{BodyType, is_cross_site};
use crate::http::front_page::front_page;
use crate::http::http_api::HttpApi;
use crate::http::http1;
use crate::http::openapi;
use crate::http::prefer::BodyForm;
use crate::http::response::HttpResponse;
use crate::http::routes::{ApiEndpoint, ApiRoute, max_body_len};
use crate::http::{HttpHandler, HttpLimits, HttpRequest, serve_http};
use crate::listen::counters::ListenerCounters;
use crate::listen::{
    BufferPriority, BufferReservation, DrainOutcome, Listener, Peer, ShutdownSignal,
};
use tollgate_service::{RequestOutcome, Transport};

impl<C: Clock> HttpApi<C> {
    /// Serves every client of `listener` until `shutdown` completes, then drains open connections. Returns for no other reason.
    pub async fn run(
        self: Arc<Self>,
        listener: Listener,
        limits: HttpLimits,
        shutdown: impl Future<Output = ()>,
    ) -> DrainOutcome
    where
        C: 'static,
    {
        serve_http(limits, listener, self, shutdown).await
    }

    /// Serves one connection that another listener has accepted, until the client disconnects or `stopping` triggers.
    pub async fn serve_connection<S>(
        self: Arc<Self>,
        stream: S,
        peer: Peer,
        limits: HttpLimits,
        stopping: ShutdownSignal,
    ) where
        C: 'static,
        S: AsyncRead + AsyncWrite + Unpin + Send,
    {
        http1::serve(limits, self, stream, peer, stopping).await;
    }

    /// Answers one request that was read in full, without the size limits, timeouts and delays of a connection. For programs
    /// with their own HTTP server, and for benchmarks.
    ///
    /// ```
    /// use tollgate_server::{HttpApi, demo_policy, listen::{Peer, LocalEndpoint}};
    /// use tollgate_store::SystemClock;
    ///
    /// let api = HttpApi::new(&demo_policy()?, 1_000, SystemClock::new())?;
    /// let address = ([127, 0, 0, 1], 8080).into();
    /// let peer = Peer::new(Some(address), LocalEndpoint::Tcp(address));
    /// let request = hyper::Request::post("/v1/check").body(br#"{"key":"alice"}"#.as_slice())?;
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// # runtime.block_on(async {
    /// assert_eq!(api.respond(&request, &peer).await.status(), 200);
    /// # });
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn respond(&self, request: &Request<&[u8]>, peer: &Peer) -> Response<Full<Bytes>>
    where
        C: 'static,
    {
        let request = HttpRequest {
            method: request.method(),
            path: request.uri().path(),
            query: request.uri().query().unwrap_or(""),
            headers: request.headers(),
            prefer: BodyForm::from_headers(request.headers()),
            body: request.body(),
            peer,
        };
        self.handle(&request).await.into_response()
    }

    /// The server decides without a remote store, so only a shutdown and a stall makes it unready.
    fn ready(&self) -> HttpResponse {
        match self.is_draining() {
            true => HttpResponse::status_problem(
                StatusCode::SERVICE_UNAVAILABLE,
                "the server is stopping",
            ),
            false => self.health("ready\n"),
        }
    }

    /// This text while requests are decided, and 503 with the age of the last decision if they are not: see
    /// [`RateLimitService::stalled_for`](tollgate_service::RateLimitService::stalled_for).
    pub(crate) fn health(&self, text: &'static str) -> HttpResponse {
        match self.service.stalled_for() {
            None => HttpResponse::text(text),
            Some(age) => {
                let millis = age.as_nanos() / 1_000_000;
                let detail = format!(
                    "the server is stalled: it made its last decision {}.{:03} s ago",
                    millis / 1_000,
                    millis % 1_000
                );
                HttpResponse::status_problem(StatusCode::SERVICE_UNAVAILABLE, detail)
            }
        }
    }
}

impl<C: Clock + 'static> HttpHandler for HttpApi<C> {
    fn max_body_len(&self, method: &Method, path: &str) -> usize {
        max_body_len(method, path)
    }

    fn reads_headers(&self, path: &str) -> bool {
        ApiRoute::find(path).is_none_or(|route| {
            matches!(
                route.endpoint,
                ApiEndpoint::ForwardAuth(_) | ApiEndpoint::FrontPage
            )
        })
    }

    fn counters(&self) -> &ListenerCounters {
        self.counters()
    }

    fn reserve_buffers(&self) -> BufferReservation {
        BufferReservation::new(Arc::clone(self.buffers()), BufferPriority::Normal)
    }

    fn has_fleet(&self) -> bool {
        self.service.fleet().is_some()
    }

    async fn handle(&self, request: &HttpRequest<'_>) -> HttpResponse {
        request.peer.progress.mark_established();
        let Some(route) = ApiRoute::find(request.path) else {
            return no_endpoint(request.path);
        };
        if !route.allows(request.method) {
            return wrong_method(request.method, route.methods);
        }
        if self.envoy.is_by_files() && !route.works_with_envoy_files() {
            let detail =
                "this server runs envoyproxy/ratelimit configuration; use gRPC or POST /json";
            return HttpResponse::status_problem(StatusCode::NOT_IMPLEMENTED, detail);
        }
        if let Err(refusal) = reject_cross_site(route, request) {
            self.metrics()
                .record_outcome(Transport::Http, RequestOutcome::Failed);
            return refusal;
        }
        let began = route.endpoint.is_decision().then(|| self.service.now());
        let answered = match route.endpoint {
            ApiEndpoint::Check => self.check(request).await,
            ApiEndpoint::Batch => self.check_batch(request).await,
            ApiEndpoint::Acquire => self.acquire(request).await,
            ApiEndpoint::Reserve => self.reserve(request).await,
            // Boxed futures are large and rarer than checks. An idle connection reserves space for the largest future here.
            ApiEndpoint::Report(report) => Box::pin(self.report(report, request)).await,
            ApiEndpoint::ForwardAuth(gateway) => self.authorize(gateway, request).await,
            ApiEndpoint::Status => self.status(request).await,
            ApiEndpoint::Limits => Ok(self.list_limits()),
            ApiEndpoint::OpenApi => Ok(HttpResponse::json(openapi::DOCUMENT)),
            ApiEndpoint::Health => Ok(self.health("ok\n")),
            ApiEndpoint::EnvoyHealth => Ok(self.health("OK")),
            ApiEndpoint::RlsJson => Ok(Box::pin(self.answer_rls_json(request.body)).await),
            ApiEndpoint::Ready => Ok(self.ready()),
            ApiEndpoint::FrontPage => {
                let text = self.welcome_text(&request.peer.local, &[]);
                Ok(front_page(request.headers, text))
            }
        };
        if let Some(began) = began {
            let span = self.service.now().since(began);
            self.metrics().observe_duration(Transport::Http, span, 1);
            if answered.is_err() {
                self.metrics()
                    .record_outcome(Transport::Http, RequestOutcome::Failed);
            }
        }
        answered.unwrap_or_else(|bad| bad_request(&bad))
    }
}

fn no_endpoint(path: &str) -> HttpResponse {
    let detail = match path {
        // Where most programs have them.
        "/metrics" => {
            "metrics are on the admin listener, by default http://127.0.0.1:8088/metrics; see --listen-admin".to_owned()
        }
        _ => format!("there is no endpoint at {:?}", echo(path.as_bytes())),
    };
    HttpResponse::status_problem(StatusCode::NOT_FOUND, detail)
}

/// Refuses what a web page of another site can make a browser send, if it would change something. Forward-auth endpoints get
/// the fields of the request that the gateway holds, so they are not asked.
fn reject_cross_site(route: &ApiRoute, request: &HttpRequest<'_>) -> Result<(), HttpResponse> {
    let headers = request.headers;
    if *request.method == Method::POST && route.max_body_len > 0 {
        if BodyType::of_headers(headers).is_acceptable(headers) {
            return Ok(());
        }
        let sent = headers
            .get(CONTENT_TYPE)
            .map_or(&b""[..], |value| value.as_bytes());
        let reason = "it must be application/json; with curl use --json";
        let bad = BadInput::new("content-type", sent, reason);
        let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        return Err(HttpResponse::status_problem(status, bad.to_string()));
    }
    if route.endpoint == ApiEndpoint::Check && is_cross_site(headers) {
        let detail = "origin: pages of other sites may not charge a limit with GET; send POST with content-type application/json";
        return Err(HttpResponse::status_problem(StatusCode::FORBIDDEN, detail));
    }
    Ok(())
}

fn bad_request(bad: &BadInput) -> HttpResponse {
    HttpResponse::status_problem(StatusCode::BAD_REQUEST, bad.to_string())
}

fn wrong_method(method: &Method, allowed: &'static str) -> HttpResponse {
    let method = echo(method.as_str().as_bytes());
    let detail = format!("{method} is not allowed here; allowed are {allowed}");
    HttpResponse::status_problem(StatusCode::METHOD_NOT_ALLOWED, detail).allow(allowed)
}
