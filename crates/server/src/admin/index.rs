//! What there is on the admin listener, for people and for programs.
//!
//! Must not know: how anything is answered.

use super::routes::ROUTES;
use crate::http::response::HttpResponse;

/// The description of every endpoint, as OpenAPI.
const DOCUMENT: &str = include_str!("openapi.json");

/// Every endpoint with what it is for.
pub(super) fn index_page() -> HttpResponse {
    let mut page = String::from("tollgate admin\n\n");
    for route in ROUTES {
        page.push_str(&format!("{:<15} {}\n", route.path, route.description));
    }
    page.push_str(
        "\nWhat changes something takes JSON (content-type: application/json) with who and why:\n\
         curl -X PUT --json '{\"limit\": \"*\", \"to\": \"shadow\", \"who\": \"ada\", \"why\": \"incident 7\"}' …/v1/switches\n",
    );
    HttpResponse::text(page)
}

pub(super) fn openapi_document() -> HttpResponse {
    HttpResponse::json(DOCUMENT)
}
