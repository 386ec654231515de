//! Claims of signed tokens as attributes of the layer. The tokens are of OpenSSL, not of our own code.

use http::Request;
use http::header::AUTHORIZATION;
use tollgate_service::TokenRejection;

use super::support::{ask, field, layer};

/// Each user has one request an hour, and all requests without a valid token together have one.
const POLICY: &str = "
jwt: { keys: [{ kty: OKP, crv: Ed25519, kid: k, x: rdRSJTY6WBO_04iXk4NQfQEhQFDw0-e78yHFmgE80UI }] }
limits:
  - { name: per-user, key: claim.sub, missing: shared, rate: 1/h }
";
/// The claims are `{"sub":"ada","exp":4102444800}`.
const ADA: &str = "eyJhbGciOiJFZERTQSIsImtpZCI6ImsifQ.eyJzdWIiOiJhZGEiLCJleHAiOjQxMDI0NDQ4MDB9.k5OVcFdfxylgVajMHk23a78MkrY8sUjtp1GRZB7i90sjdJPcEcQNMcbwMGQVLNZWGp5Het_rUeS3p82w2nohDQ";
/// The same for `bob`.
const BOB: &str = "eyJhbGciOiJFZERTQSIsImtpZCI6ImsifQ.eyJzdWIiOiJib2IiLCJleHAiOjQxMDI0NDQ4MDB9.ilkNr7R1gmfU5QY1JD-RzFaMxtngEV7Ws2wvYGU-rpqD7sqSkccdTeg4HFUozqTf4Eb8mmNJz-b_b5gijaOZCA";

#[tokio::test]
async fn tokens_have_quotas_of_their_own_and_forged_tokens_have_none() {
    let (layer, _clock) = layer(POLICY);
    let status = async |token: &str| {
        let request = Request::get("/").header(AUTHORIZATION, format!("Bearer {token}"));
        let response = ask(&layer, request.body(()).unwrap()).await;
        response.status().as_u16()
    };
    assert_eq!(status(ADA).await, 200);
    assert_eq!(status(ADA).await, 429);
    assert_eq!(status(BOB).await, 200, "another user");
    // The claims of ada with the signature of bob.
    let (signed, _) = ADA.rsplit_once('.').unwrap();
    let (_, signature) = BOB.rsplit_once('.').unwrap();
    assert_eq!(status(&format!("{signed}.{signature}")).await, 200);
    let other = ADA.replace("k5OV", "k5OW");
    assert_eq!(status(&other).await, 429, "all forged tokens share a quota");
    let counters = layer.rate_limit_service().claims().counters();
    assert_eq!(counters.verified(), 2);
    assert_eq!(counters.rejections(TokenRejection::Signature), 2);
}

const RETRIES: &str = "
jwt: { keys: [{ kty: OKP, crv: Ed25519, kid: k, x: rdRSJTY6WBO_04iXk4NQfQEhQFDw0-e78yHFmgE80UI }] }
overload: { retries: enforce, retry_share: 50%, retry_client: claim.sub }
limits:
  - { name: per-user, key: claim.sub, missing: shared, rate: 1000/s }
";

/// A client without a valid token may write into the header what it likes: it neither spends nor earns retries.
#[tokio::test]
async fn retries_of_verified_clients_are_bounded_and_headers_of_others_are_not_believed() {
    let (layer, _clock) = layer(RETRIES);
    let send = async |token: &str, attempt: &str| {
        let request = Request::get("/").header(AUTHORIZATION, format!("Bearer {token}"));
        let request = request.header("x-envoy-attempt-count", attempt);
        ask(&layer, request.body(()).unwrap()).await
    };
    let admitted = async |token: &str, attempt: &str, count: usize| {
        let mut admitted = 0;
        for _ in 0..count {
            admitted += usize::from(send(token, attempt).await.status() == 200);
        }
        admitted
    };
    let forged = ADA.replace("k5OV", "k5OW");
    assert_eq!(admitted(&forged, "2", 30).await, 30);
    assert_eq!(admitted(ADA, "2", 1).await, 1, "not verified before");
    assert_eq!(admitted(ADA, "2", 30).await, 10, "what is saved at first");
    let shed = send(ADA, "3").await;
    assert_eq!(shed.status(), 503);
    assert_eq!(field(&shed, "retry-after"), Some("5"));
    assert_eq!(admitted(&forged, "1", 30).await, 30);
    assert_eq!(
        admitted(ADA, "2", 1).await,
        0,
        "forged first tries earn nothing"
    );
    assert_eq!(admitted(ADA, "1", 2).await, 2);
    assert_eq!(admitted(ADA, "no number", 2).await, 2);
    assert_eq!(admitted(ADA, "2", 10).await, 2, "half of four first tries");
    let counters = layer.rate_limit_service().claims().counters();
    assert_eq!(counters.verified(), 1, "shedding verifies nothing");
}
