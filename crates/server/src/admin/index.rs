//! The index page and the OpenAPI document of the admin listener.
//!
//! Must not know: what endpoints do.

use super::routes::ROUTES;
use crate::http::response::HttpResponse;

/// The OpenAPI document of all endpoints.
const DOCUMENT: &str = include_str!("openapi.json");

/// All endpoints with their descriptions.
pub(super) fn index_page() -> HttpResponse {
    let mut page = String::from("tollgate admin\n\n");
    for route in ROUTES {
        page.push_str(&format!("{:<15} {}\n", route.path, route.description));
    }
    page.push_str(
        "\nChanges take JSON (content-type: application/json) with who and why:\n\
         curl -X PUT --json '{\"limit\": \"*\", \"to\": \"shadow\", \"who\": \"ada\", \"why\": \"incident 7\"}' …/v1/switches\n",
    );
    HttpResponse::text(page)
}

pub(super) fn openapi_document() -> HttpResponse {
    HttpResponse::json(DOCUMENT)
}
