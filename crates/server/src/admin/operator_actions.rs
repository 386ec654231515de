//! The operator actions: switch limits, override quotas, block, reset, charge, refund, and reload the policy.
//!
//! The engine carries out each change and records who made it. This file parses requests and renders responses. Must not know:
//! permissions, sockets.

use std::num::NonZeroU64;
use std::sync::Arc;

use hyper::{Method, StatusCode};
use serde::Serialize;
use tollgate_engine::control::{AdjustedKey, Control, OperatorError, UnitAdjustment};
use tollgate_policy::attributes::Attributes;
use tollgate_service::OperatorActionError;
use tollgate_service::reload::ReloadOutcome;
use tollgate_store::{Clock, MemoryStore};

use super::AdminApi;
use super::operator_request::{OperatorRequest, signed_by};
use crate::http::HttpRequest;
use crate::http::bad_input::BadInput;
use crate::http::response::HttpResponse;
use crate::http::verdict_body::to_json_string;
use crate::listen::Peer;

/// The response to a change.
#[derive(Serialize)]
struct DoneBody {
    done: bool,
}

#[derive(Serialize)]
struct ResetBody {
    done: bool,
    /// Whether the key had any state.
    found: bool,
}

#[derive(Serialize)]
struct AdjustedBody {
    done: bool,
    /// The units that are left.
    remaining: u64,
}

#[derive(Serialize)]
struct ReloadedBody {
    done: bool,
    generation: u64,
}

type AdminResult = Result<HttpResponse, BadInput>;

impl<C: Clock + 'static> AdminApi<C> {
    pub(super) fn set_switch(&self, request: &HttpRequest<'_>) -> AdminResult {
        let action = OperatorRequest::parse(request.body, &["limit", "to", "enforce"])?;
        let signed = action.signature(&operator_address(request.peer))?;
        let (limit, to) = (action.limit_or_all()?, action.switch()?);
        if self.app.envoy.is_by_files() && to.enforce.is_some() {
            let reason =
                "envoyproxy/ratelimit configuration is enforced for every key or in shadow mode";
            return Err(BadInput::new("enforce", b"", reason));
        }
        Ok(change_response(self.app.envoy.switch(
            limit,
            to,
            signed_by(&signed),
        )))
    }

    pub(super) fn change_override(&self, request: &HttpRequest<'_>) -> AdminResult {
        let is_put = *request.method == Method::PUT;
        let fields: &[&str] = match is_put {
            true => &["limit", "key", "quota", "for"],
            false => &["limit", "key"],
        };
        let action = OperatorRequest::parse(request.body, fields)?;
        let signed = action.signature(&operator_address(request.peer))?;
        let (limit, key) = (action.limit()?, action.key()?);
        Ok(change_response(if is_put {
            let (quota, lasts) = (action.quota()?, action.duration()?);
            self.control()
                .override_key(limit, &key, quota, lasts, signed_by(&signed))
        } else {
            self.control()
                .remove_override(limit, &key, signed_by(&signed))
        }))
    }

    pub(super) fn change_block(&self, request: &HttpRequest<'_>) -> AdminResult {
        let is_put = *request.method == Method::PUT;
        let fields: &[&str] = match is_put {
            true => &["limit", "key", "address", "for"],
            false => &["limit", "key", "address"],
        };
        let action = OperatorRequest::parse(request.body, fields)?;
        let signed = action.signature(&operator_address(request.peer))?;
        let lasts = action.duration()?;
        let changed = match (action.address()?, is_put) {
            (Some(address), true) => {
                self.control()
                    .block_address(address, lasts, signed_by(&signed))
            }
            (Some(address), false) => self.control().unblock_address(address, signed_by(&signed)),
            (None, true) => {
                self.control()
                    .block_key(action.limit()?, &action.key()?, lasts, signed_by(&signed))
            }
            (None, false) => {
                self.control()
                    .unblock_key(action.limit()?, &action.key()?, signed_by(&signed))
            }
        };
        Ok(change_response(changed))
    }

    /// Resets a key on this node and in the shared store of a fleet.
    pub(super) async fn reset(&self, request: &HttpRequest<'_>) -> AdminResult {
        let action = OperatorRequest::parse(request.body, &["limit", "key"])?;
        let signed = action.signature(&operator_address(request.peer))?;
        let (limit, key) = (action.limit()?, action.key()?);
        let reset = self.app.service.reset(limit, &key, signed_by(&signed));
        Ok(match reset.await {
            Ok(found) => HttpResponse::json(to_json_string(&ResetBody { done: true, found })),
            Err(OperatorActionError::Refused(why)) => error_response(&why),
            Err(error) => {
                tracing::warn!(%error, "reset failed in the shared store");
                let detail = "the key was reset on this node, but the shared store did not answer; try again";
                HttpResponse::status_problem(StatusCode::SERVICE_UNAVAILABLE, detail)
            }
        })
    }

    /// Charges or refunds units of a key, in the shared store of a fleet or on this node.
    pub(super) async fn adjust(
        &self,
        request: &HttpRequest<'_>,
        adjustment: fn(NonZeroU64) -> UnitAdjustment,
    ) -> AdminResult {
        let fields = ["limit", "key", "attributes", "units"];
        let action = OperatorRequest::parse(request.body, &fields)?;
        let signed = action.signature(&operator_address(request.peer))?;
        let (values, attributes) = (action.key()?, action.attributes()?);
        let key = AdjustedKey {
            limit: action.limit()?,
            values: &values,
            attributes: attributes.as_ref().map(|given| given as &dyn Attributes),
        };
        let adjustment = adjustment(action.units()?);
        let service = &self.app.service;
        Ok(
            match service.adjust(key, adjustment, signed_by(&signed)).await {
                Ok(remaining) => HttpResponse::json(to_json_string(&AdjustedBody {
                    done: true,
                    remaining,
                })),
                Err(OperatorActionError::Refused(why)) => error_response(&why),
                Err(error) => {
                    tracing::warn!(%error, "charge or refund failed in the store");
                    let detail = match &error {
                        OperatorActionError::Store(error) if error.may_have_charged() => {
                            "the shared store did not answer in time; the change may have been made, look at the key before you repeat it"
                        }
                        _ => "the store did not answer; nothing was changed, try again",
                    };
                    HttpResponse::status_problem(StatusCode::SERVICE_UNAVAILABLE, detail)
                }
            },
        )
    }

    /// Reloads the policy file, even if it has not changed.
    pub(super) async fn reload(&self, request: &HttpRequest<'_>) -> AdminResult {
        let action = OperatorRequest::parse(request.body, &[])?;
        let (who, why) = action.signature(&operator_address(request.peer))?;
        let Some(reloader) = self.app.envoy.reloader() else {
            let detail = "the policy does not come from a file; start with --config";
            return Ok(HttpResponse::status_problem(StatusCode::CONFLICT, detail));
        };
        // The reload logs its result; this logs who requested it.
        tracing::info!(%who, %why, "policy reload requested");
        // The admin thread goes on meanwhile: it may take as long as the deadline of a read.
        let reloading = Arc::clone(&reloader);
        let outcome = tokio::task::spawn_blocking(move || reloading.reload_now()).await;
        Ok(match outcome.unwrap_or(ReloadOutcome::Rejected) {
            ReloadOutcome::Reloaded(generation) => {
                HttpResponse::json(to_json_string(&ReloadedBody {
                    done: true,
                    generation,
                }))
            }
            ReloadOutcome::Unchanged | ReloadOutcome::Settling | ReloadOutcome::Rejected => {
                let status = reloader.status();
                let problems = status.error.map(|problems| problems.to_string());
                let detail = format!(
                    "the file is invalid, the previous policy stays in use:\n{}",
                    problems.unwrap_or_default()
                );
                HttpResponse::status_problem(StatusCode::UNPROCESSABLE_ENTITY, detail)
            }
        })
    }

    fn control(&self) -> Control<'_, MemoryStore<C>> {
        self.app.service.control()
    }
}

/// The address of an operator, for the audit log.
fn operator_address(peer: &Peer) -> String {
    match peer.address {
        Some(address) => address.ip().to_canonical().to_string(),
        None => "unix socket".to_owned(),
    }
}

fn change_response(changed: Result<(), OperatorError>) -> HttpResponse {
    match changed {
        Ok(()) => HttpResponse::json(to_json_string(&DoneBody { done: true })),
        Err(why) => error_response(&why),
    }
}

fn error_response(why: &OperatorError) -> HttpResponse {
    let status = match why {
        OperatorError::UnknownLimit { .. } | OperatorError::NotFound { .. } => {
            StatusCode::NOT_FOUND
        }
        OperatorError::TooMany { .. } => StatusCode::CONFLICT,
        _ => StatusCode::BAD_REQUEST,
    };
    let field = match why {
        OperatorError::UnknownLimit { .. } => "limit: ",
        _ => "",
    };
    HttpResponse::status_problem(status, format!("{field}{why}"))
}
