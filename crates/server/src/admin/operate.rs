//! What operators do: switch limits, give keys other quotas, block, reset, and have the policy read again.
//!
//! Everything is the engine's doing and is signed; this reads what is asked and words what came of it. Must not know: who
//! may do what, sockets.

use hyper::{Method, StatusCode};
use serde::Serialize;
use tollgate_engine::control::{Control, OperatorError};
use tollgate_service::ResetError;
use tollgate_service::reload::ReloadOutcome;
use tollgate_store::{Clock, Memory};

use super::Admin;
use super::operator_request::{OperatorRequest, by};
use crate::http::HttpRequest;
use crate::http::bad_input::BadInput;
use crate::http::response::HttpResponse;
use crate::http::verdict_body::json;
use crate::listen::Peer;

/// What came of it.
#[derive(Serialize)]
struct Done {
    done: bool,
}

#[derive(Serialize)]
struct Forgotten {
    done: bool,
    /// Whether there was anything to forget.
    found: bool,
}

#[derive(Serialize)]
struct Reloaded {
    done: bool,
    generation: u64,
}

type Answer = Result<HttpResponse, BadInput>;

impl<C: Clock + 'static> Admin<C> {
    pub(super) fn switch(&self, request: &HttpRequest<'_>) -> Answer {
        let said = OperatorRequest::read(request.body, &["limit", "to", "enforce"])?;
        let signed = said.signed(&from(request.peer))?;
        let (limit, to) = (said.limit_or_everything()?, said.switch()?);
        if self.app.envoy.is_by_files() && to.enforce.is_some() {
            let reason = "files of envoyproxy/ratelimit are enforced for every key or in shadow";
            return Err(BadInput::new("enforce", b"", reason));
        }
        Ok(done(self.app.envoy.switch(limit, to, by(&signed))))
    }

    pub(super) fn change_override(&self, request: &HttpRequest<'_>) -> Answer {
        let is_put = *request.method == Method::PUT;
        let fields: &[&str] = match is_put {
            true => &["limit", "key", "quota", "for"],
            false => &["limit", "key"],
        };
        let said = OperatorRequest::read(request.body, fields)?;
        let signed = said.signed(&from(request.peer))?;
        let (limit, key) = (said.limit()?, said.key()?);
        Ok(done(if is_put {
            let (quota, lasts) = (said.quota()?, said.lasts()?);
            self.control()
                .override_key(limit, &key, quota, lasts, by(&signed))
        } else {
            self.control().lift_override(limit, &key, by(&signed))
        }))
    }

    pub(super) fn change_block(&self, request: &HttpRequest<'_>) -> Answer {
        let is_put = *request.method == Method::PUT;
        let fields: &[&str] = match is_put {
            true => &["limit", "key", "address", "for"],
            false => &["limit", "key", "address"],
        };
        let said = OperatorRequest::read(request.body, fields)?;
        let signed = said.signed(&from(request.peer))?;
        let lasts = said.lasts()?;
        let changed = match (said.address()?, is_put) {
            (Some(address), true) => self.control().block_address(address, lasts, by(&signed)),
            (Some(address), false) => self.control().unblock_address(address, by(&signed)),
            (None, true) => {
                self.control()
                    .block_key(said.limit()?, &said.key()?, lasts, by(&signed))
            }
            (None, false) => self
                .control()
                .unblock_key(said.limit()?, &said.key()?, by(&signed)),
        };
        Ok(done(changed))
    }

    /// Forgets what a key has used, on this node and in the store that a fleet shares.
    pub(super) async fn reset(&self, request: &HttpRequest<'_>) -> Answer {
        let said = OperatorRequest::read(request.body, &["limit", "key"])?;
        let signed = said.signed(&from(request.peer))?;
        let (limit, key) = (said.limit()?, said.key()?);
        let reset = self.app.service.reset(limit, &key, by(&signed));
        Ok(match reset.await {
            Ok(found) => HttpResponse::json(json(&Forgotten { done: true, found })),
            Err(ResetError::Refused(why)) => refused(&why),
            Err(error) => {
                tracing::warn!(%error, "a reset did not reach the shared store");
                let detail =
                    "it is forgotten on this node, and the shared store did not answer; try again";
                HttpResponse::plain(StatusCode::SERVICE_UNAVAILABLE, detail)
            }
        })
    }

    /// Reads the policy's file again, changed or not.
    pub(super) fn reload(&self, request: &HttpRequest<'_>) -> Answer {
        let said = OperatorRequest::read(request.body, &[])?;
        let (who, why) = said.signed(&from(request.peer))?;
        let Some(reloader) = self.app.envoy.reload() else {
            let detail = "the policy comes from no file; start with --config";
            return Ok(HttpResponse::plain(StatusCode::CONFLICT, detail));
        };
        // The engine logs what came of it; this is who wanted it.
        tracing::info!(%who, %why, "the policy is read again");
        Ok(match reloader.reload_now() {
            ReloadOutcome::Swapped(generation) => HttpResponse::json(json(&Reloaded {
                done: true,
                generation,
            })),
            ReloadOutcome::Same | ReloadOutcome::Refused => {
                let status = reloader.status();
                let problems = status.error.map(|problems| problems.to_string());
                let detail = format!(
                    "the file is wrong, and what was in force still is:\n{}",
                    problems.unwrap_or_default()
                );
                HttpResponse::plain(StatusCode::UNPROCESSABLE_ENTITY, detail)
            }
        })
    }

    fn control(&self) -> Control<'_, Memory<C>> {
        self.app.service.control()
    }
}

/// Where somebody comes from, as the log says it behind their name.
fn from(peer: &Peer) -> String {
    match peer.address {
        Some(address) => address.ip().to_canonical().to_string(),
        None => "unix socket".to_owned(),
    }
}

fn done(changed: Result<(), OperatorError>) -> HttpResponse {
    match changed {
        Ok(()) => HttpResponse::json(json(&Done { done: true })),
        Err(why) => refused(&why),
    }
}

fn refused(why: &OperatorError) -> HttpResponse {
    let status = match why {
        OperatorError::UnknownLimit { .. } | OperatorError::NotThere { .. } => {
            StatusCode::NOT_FOUND
        }
        OperatorError::TooMany { .. } => StatusCode::CONFLICT,
        _ => StatusCode::BAD_REQUEST,
    };
    let field = match why {
        OperatorError::UnknownLimit { .. } => "limit: ",
        _ => "",
    };
    HttpResponse::plain(status, format!("{field}{why}"))
}
