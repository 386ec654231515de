//! Refusals of gRPC calls.

use http::{Request, Version};
use http_body_util::BodyExt as _;

use super::support::{ask, field, layer_with};

fn call(method: &str) -> Request<()> {
    Request::post(format!("/demo.Greeter/{method}"))
        .version(Version::HTTP_2)
        .header("content-type", "application/grpc+proto")
        .body(())
        .unwrap()
}

#[tokio::test]
async fn a_denied_call_is_resource_exhausted_and_says_when_to_retry() {
    let (layer, _clock) = layer_with(
        "limits: [{ name: per-method, key: route, rate: 1/min }]",
        |builder| builder.grpc_methods(["/demo.Greeter/SayHello", "/demo.Greeter/SayGoodbye"]),
    );
    assert_eq!(ask(&layer, call("SayHello")).await.status(), 200);
    let denied = ask(&layer, call("SayHello")).await;
    assert_eq!(denied.status(), 200, "trailers only");
    assert_eq!(field(&denied, "grpc-status"), Some("8"));
    assert_eq!(field(&denied, "content-type"), Some("application/grpc"));
    assert_eq!(field(&denied, "retry-after"), Some("60"));
    assert!(field(&denied, "grpc-status-details-bin").is_some());
    let message = field(&denied, "grpc-message").unwrap();
    assert!(
        message.starts_with(r#"the limit "per-method" has no room"#),
        "{message}"
    );
    let body = denied.into_body().collect().await.unwrap().to_bytes();
    assert!(body.is_empty());
    let other = ask(&layer, call("SayGoodbye")).await;
    assert_eq!(field(&other, "grpc-status"), None, "a method of its own");
    // Methods that do not exist share one quota: a client could make up any number of them.
    let unknown = ask(&layer, call("Made-up-1")).await;
    assert_eq!(field(&unknown, "grpc-status"), None);
    let unknown = ask(&layer, call("Made-up-2")).await;
    assert_eq!(field(&unknown, "grpc-status"), Some("8"));
}
