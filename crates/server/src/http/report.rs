//! The endpoints that report about a ticket: respond, settle, cancel, renew and release.
//!
//! Must not know: sockets, how tickets are stored, what they settle.

use hyper::StatusCode;
use serde::Serialize;
use tollgate_engine::Response;
use tollgate_store::{Clock, StoreError};

use crate::http::HttpRequest;
use crate::http::bad_input::BadInput;
use crate::http::http_api::App;
use crate::http::json::{TicketReport as Said, parse_report};
use crate::http::response::HttpResponse;
use crate::http::routes::TicketReportKind;
use crate::http::verdict_body::to_json_string;
use tollgate_service::{TICKET_LIFETIME, TakenTicket};

/// The response to a report.
#[derive(Serialize)]
struct Done {
    ticket: String,
    /// Whether this report settled the ticket; false if an earlier one did.
    settled: bool,
}

/// The response to a renewal.
#[derive(Serialize)]
struct Renewed {
    ticket: String,
    /// Whether all leases are still held.
    held: bool,
    /// How long the ticket stays open without another renewal.
    expires_after_ms: u64,
}

impl<C: Clock> App<C> {
    pub(crate) async fn report(
        &self,
        report: TicketReportKind,
        request: &HttpRequest<'_>,
    ) -> Result<HttpResponse, BadInput> {
        let said = parse_report(request.body, fields(report))?;
        if report == TicketReportKind::Renew {
            return Ok(self.renew(said.ticket).await);
        }
        let actual = match (report, said.cost) {
            (TicketReportKind::Settle, None) => {
                return Err(BadInput::new("cost", b"", "it must be given"));
            }
            (_, cost) => cost.unwrap_or_default(),
        };
        if report == TicketReportKind::Respond && said.status.is_none() {
            return Err(BadInput::new("status", b"", "it must be given"));
        }
        let ticket = match self.service.take_ticket(said.ticket).await {
            TakenTicket::Open(ticket) => ticket,
            TakenTicket::AlreadySettled => return Ok(done(said.ticket, false)),
            TakenTicket::Unknown => return Ok(unknown(said.ticket)),
        };
        let service = &self.service;
        let settled = match report {
            TicketReportKind::Settle => service.settle(ticket, actual).await,
            TicketReportKind::Cancel => service.cancel(ticket).await,
            TicketReportKind::Respond | TicketReportKind::Release | TicketReportKind::Renew => {
                service.respond(ticket, &Answered(&said)).await
            }
        };
        Ok(match settled {
            Ok(()) => done(said.ticket, true),
            Err(error) => failed(&error),
        })
    }

    async fn renew(&self, id: u128) -> HttpResponse {
        match self.service.renew_ticket(id).await {
            Ok(None) => unknown(id),
            Err(error) => failed(&error),
            Ok(Some(held)) => HttpResponse::json(to_json_string(&Renewed {
                ticket: format!("{id:032x}"),
                held,
                expires_after_ms: TICKET_LIFETIME.as_millis_ceil(),
            })),
        }
    }
}

/// The fields that a report may have besides `ticket`.
const fn fields(report: TicketReportKind) -> &'static [&'static str] {
    match report {
        TicketReportKind::Respond => &["status", "headers"],
        TicketReportKind::Settle => &["cost"],
        TicketReportKind::Cancel | TicketReportKind::Renew | TicketReportKind::Release => &[],
    }
}

/// The reported response of the upstream. Without a status it belongs to no status class.
struct Answered<'a>(&'a Said);

impl Response for Answered<'_> {
    fn status(&self) -> u16 {
        self.0.status.unwrap_or(0)
    }

    fn header(&self, name: &str) -> Option<&[u8]> {
        let known = self.0.headers.iter().find(|(known, _)| **known == *name);
        known.map(|(_, value)| &**value)
    }
}

fn done(id: u128, settled: bool) -> HttpResponse {
    HttpResponse::json(to_json_string(&Done {
        ticket: format!("{id:032x}"),
        settled,
    }))
}

fn unknown(id: u128) -> HttpResponse {
    let detail = format!("ticket: \"{id:032x}\" is not open: it has expired, or was never given");
    HttpResponse::status_problem(StatusCode::NOT_FOUND, detail)
}

fn failed(error: &StoreError) -> HttpResponse {
    tracing::warn!(%error, "the store did not settle a ticket");
    let detail = "the store did not carry out all of it; places return when their leases end";
    HttpResponse::status_problem(StatusCode::SERVICE_UNAVAILABLE, detail)
}
