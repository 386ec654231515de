//! The endpoints that report about a ticket: respond, settle, cancel, renew and release.
//!
//! Must not know: sockets, how tickets are stored, what they settle.

use hyper::StatusCode;
use serde::Serialize;
use tollgate_engine::Response;
use tollgate_store::{Clock, StoreError};

use crate::http::HttpRequest;
use crate::http::bad_input::BadInput;
use crate::http::http_api::HttpApi;
use crate::http::json::{TicketReport, parse_report};
use crate::http::response::HttpResponse;
use crate::http::routes::TicketReportKind;
use crate::http::verdict_body::to_json_string;
use tollgate_service::{TICKET_LIFETIME, TakenTicket};

/// The response to a report.
#[derive(Serialize)]
struct SettledBody {
    ticket: String,
    /// Whether this report settled the ticket; false if an earlier one did.
    settled: bool,
}

/// The response to a renewal.
#[derive(Serialize)]
struct RenewedBody {
    ticket: String,
    /// Whether all leases are still held.
    held: bool,
    /// How long the ticket stays open without another renewal.
    expires_after_ms: u64,
}

impl<C: Clock> HttpApi<C> {
    pub(crate) async fn report(
        &self,
        kind: TicketReportKind,
        request: &HttpRequest<'_>,
    ) -> Result<HttpResponse, BadInput> {
        let report = parse_report(request.body, allowed_fields(kind))?;
        if kind == TicketReportKind::Renew {
            return Ok(self.renew(report.ticket).await);
        }
        let actual = match (kind, report.cost) {
            (TicketReportKind::Settle, None) => {
                return Err(BadInput::new("cost", b"", "it must be given"));
            }
            (_, cost) => cost.unwrap_or_default(),
        };
        if kind == TicketReportKind::Respond && report.status.is_none() {
            return Err(BadInput::new("status", b"", "it must be given"));
        }
        let ticket = match self.service.take_ticket(report.ticket).await {
            TakenTicket::Open(ticket) => ticket,
            TakenTicket::AlreadySettled => return Ok(settled_response(report.ticket, false)),
            TakenTicket::Unknown => return Ok(unknown_ticket(report.ticket)),
        };
        let service = &self.service;
        let settled = match kind {
            TicketReportKind::Settle => service.settle(ticket, actual).await,
            TicketReportKind::Cancel => service.cancel(ticket).await,
            TicketReportKind::Respond | TicketReportKind::Release | TicketReportKind::Renew => {
                service.respond(ticket, &ReportedResponse(&report)).await
            }
        };
        Ok(match settled {
            Ok(()) => settled_response(report.ticket, true),
            Err(error) => store_failed(&error),
        })
    }

    async fn renew(&self, id: u128) -> HttpResponse {
        match self.service.renew_ticket(id).await {
            Ok(None) => unknown_ticket(id),
            Err(error) => store_failed(&error),
            Ok(Some(held)) => HttpResponse::json(to_json_string(&RenewedBody {
                ticket: format!("{id:032x}"),
                held,
                expires_after_ms: TICKET_LIFETIME.as_millis_ceil(),
            })),
        }
    }
}

/// The fields that a report may have besides `ticket`.
const fn allowed_fields(kind: TicketReportKind) -> &'static [&'static str] {
    match kind {
        TicketReportKind::Respond => &["status", "headers"],
        TicketReportKind::Settle => &["cost"],
        TicketReportKind::Cancel | TicketReportKind::Renew | TicketReportKind::Release => &[],
    }
}

/// The reported response of the upstream. Without a status it belongs to no status class.
struct ReportedResponse<'a>(&'a TicketReport);

impl Response for ReportedResponse<'_> {
    fn status(&self) -> u16 {
        self.0.status.unwrap_or(0)
    }

    fn header(&self, name: &str) -> Option<&[u8]> {
        let known = self.0.headers.iter().find(|(known, _)| **known == *name);
        known.map(|(_, value)| &**value)
    }
}

fn settled_response(id: u128, settled: bool) -> HttpResponse {
    HttpResponse::json(to_json_string(&SettledBody {
        ticket: format!("{id:032x}"),
        settled,
    }))
}

fn unknown_ticket(id: u128) -> HttpResponse {
    let detail = format!("ticket: \"{id:032x}\" is not open: it has expired or was never issued");
    HttpResponse::status_problem(StatusCode::NOT_FOUND, detail)
}

fn store_failed(error: &StoreError) -> HttpResponse {
    tracing::warn!(%error, "ticket settlement failed");
    let detail = "the store failed; leases that are still held end when they expire";
    HttpResponse::status_problem(StatusCode::SERVICE_UNAVAILABLE, detail)
}
