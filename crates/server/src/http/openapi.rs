//! The OpenAPI document of the public API.
//!
//! It is written by hand. The tests of this crate call every endpoint and compare. Must not know: anything else.

/// An OpenAPI 3.1 document.
pub(crate) const DOCUMENT: &str = include_str!("openapi.json");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::routes::ROUTES;
    use serde_json::Value;

    #[test]
    fn every_endpoint_is_documented_by_every_method_and_nothing_else_is() {
        let document: Value = serde_json::from_str(DOCUMENT).unwrap();
        let paths = document["paths"].as_object().unwrap();
        for route in ROUTES {
            let mut documented: Vec<String> = paths[route.path]
                .as_object()
                .unwrap()
                .keys()
                .map(|method| method.to_uppercase())
                .collect();
            documented.sort();
            // A HEAD is a GET without the response body, and gateways may use any method.
            let methods = match route.methods {
                "" => "GET",
                methods => methods.trim_end_matches(", HEAD"),
            };
            assert_eq!(documented.join(", "), methods, "{}", route.path);
        }
        assert_eq!(paths.len(), ROUTES.len());
    }
}
