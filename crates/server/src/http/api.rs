//! Which endpoint answers what, and for whom: listeners, and whoever has a request in hand.
//!
//! Must not know: sockets, connections, timeouts, how anything is decided.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Method, Request, Response, StatusCode};
use tokio::io::{AsyncRead, AsyncWrite};
use tollgate_store::Clock;

use crate::http::bad_input::{BadInput, echo};
use crate::http::http_api::App;
use crate::http::http1;
use crate::http::openapi;
use crate::http::response::HttpResponse;
use crate::http::routes::{Endpoint, Route, max_body_len};
use crate::http::{HttpHandler, HttpLimits, HttpRequest, run};
use crate::listen::counters::ListenerCounters;
use crate::listen::{Ended, Listener, Peer, Stopping};
use tollgate_service::{RequestOutcome, Transport};

impl<C: Clock> App<C> {
    /// Answers every client that comes to `listener`, until `shutdown` completes; then lets open connections finish. Never ends for
    /// any other reason.
    pub async fn run(
        self: Arc<Self>,
        listener: Listener,
        limits: HttpLimits,
        shutdown: impl Future<Output = ()>,
    ) -> Ended
    where
        C: 'static,
    {
        run(limits, listener, self, shutdown).await
    }

    /// Answers the requests of one connection that another listener has accepted, until the client leaves or `stopping` is said.
    pub async fn serve_connection<S>(
        self: Arc<Self>,
        stream: S,
        peer: Peer,
        limits: HttpLimits,
        stopping: Stopping,
    ) where
        C: 'static,
        S: AsyncRead + AsyncWrite + Unpin + Send,
    {
        http1::serve(limits, self, stream, peer, stopping).await;
    }

    /// Answers one request that was read in full, as it is answered on a connection but for bounds, times and waits: for
    /// whoever has a server of their own, and for measurements.
    ///
    /// ```
    /// use tollgate_server::{App, demo_policy, listen::{Peer, Reached}};
    /// use tollgate_store::SystemClock;
    ///
    /// let app = App::new(&demo_policy()?, 1_000, SystemClock::new())?;
    /// let address = ([127, 0, 0, 1], 8080).into();
    /// let peer = Peer { address: Some(address), local: Reached::Tcp(address) };
    /// let request = hyper::Request::post("/v1/check").body(br#"{"key":"alice"}"#.as_slice())?;
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// # runtime.block_on(async {
    /// assert_eq!(app.respond(&request, &peer).await.status(), 200);
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
            body: request.body(),
            peer,
        };
        self.answer(&request).await.into_response()
    }

    /// Decisions need no store that is elsewhere, so nothing but the end makes it unready.
    fn ready(&self) -> HttpResponse {
        match self.is_leaving() {
            true => HttpResponse::plain(StatusCode::SERVICE_UNAVAILABLE, "the server is stopping"),
            false => HttpResponse::text("ready\n"),
        }
    }
}

impl<C: Clock + 'static> HttpHandler for App<C> {
    fn max_body_len(&self, method: &Method, path: &str) -> usize {
        max_body_len(method, path)
    }

    fn reads_headers(&self, path: &str) -> bool {
        Route::at(path).is_none_or(|route| matches!(route.endpoint, Endpoint::Auth(_)))
    }

    fn counters(&self) -> &ListenerCounters {
        self.counters()
    }

    fn has_fleet(&self) -> bool {
        self.service.fleet().is_some()
    }

    async fn answer(&self, request: &HttpRequest<'_>) -> HttpResponse {
        let Some(route) = Route::at(request.path) else {
            let detail = format!("there is nothing at {:?}", echo(request.path.as_bytes()));
            return HttpResponse::plain(StatusCode::NOT_FOUND, detail);
        };
        if !route.allows(request.method) {
            return wrong_method(request.method, route.methods);
        }
        if self.envoy.is_by_files() && !route.is_for_files() {
            let detail = "files of envoyproxy/ratelimit decide here; ask by gRPC or POST /json";
            return HttpResponse::plain(StatusCode::NOT_IMPLEMENTED, detail);
        }
        let began = route.endpoint.decides().then(|| self.service.now());
        let answered = match route.endpoint {
            Endpoint::Check => self.check(request).await,
            Endpoint::Batch => self.check_batch(request).await,
            Endpoint::Acquire => self.acquire(request).await,
            Endpoint::Reserve => self.reserve(request).await,
            // What is in a box is large, and rare beside checks: an idle connection has room for the largest future.
            Endpoint::Report(report) => Box::pin(self.report(report, request)).await,
            Endpoint::Auth(gateway) => self.authorize(gateway, request).await,
            Endpoint::Status => self.status(request).await,
            Endpoint::Limits => Ok(self.limits()),
            Endpoint::OpenApi => Ok(HttpResponse::json(openapi::DOCUMENT)),
            Endpoint::Health => Ok(HttpResponse::text("ok\n")),
            Endpoint::EnvoysHealth => Ok(HttpResponse::text("OK")),
            Endpoint::Envoy => Ok(Box::pin(self.answer_rls_json(request.body)).await),
            Endpoint::Ready => Ok(self.ready()),
            Endpoint::Front => Ok(HttpResponse::text(
                self.introduction(&request.peer.local, &[]),
            )),
        };
        if let Some(began) = began {
            let span = self.service.now().since(began);
            self.metrics().observe_duration(Transport::Http, span, 1);
            if answered.is_err() {
                self.metrics()
                    .count_answer(Transport::Http, RequestOutcome::Failed);
            }
        }
        answered.unwrap_or_else(|bad| bad_request(&bad))
    }
}

fn bad_request(bad: &BadInput) -> HttpResponse {
    HttpResponse::plain(StatusCode::BAD_REQUEST, bad.to_string())
}

fn wrong_method(method: &Method, allowed: &'static str) -> HttpResponse {
    let method = echo(method.as_str().as_bytes());
    let detail = format!("{method} is not possible here; possible are {allowed}");
    HttpResponse::plain(StatusCode::METHOD_NOT_ALLOWED, detail).allow(allowed)
}
