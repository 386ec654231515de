//! Health, reflection, invalid calls, and shutdown.

use bytes::Bytes;

use super::client::{SHOULD_RATE_LIMIT, bytes_field, ending, framed, read, request};
use super::{OK, serve_policy};

const CHECK: &str = "/grpc.health.v1.Health/Check";
const WATCH: &str = "/grpc.health.v1.Health/Watch";
const POLICY: &str = "limits: [{ name: all, rate: 1000/s }]";

#[tokio::test]
async fn health_is_checked_listed_and_unknown_where_there_is_no_such_service() {
    let serving = serve_policy(POLICY).await;
    let mut client = serving.connect().await;
    for service in [
        "",
        "envoy.service.ratelimit.v3.RateLimitService",
        "envoy.service.rate_limit_quota.v3.RateLimitQuotaService",
        "ratelimit",
    ] {
        let message = bytes_field(1, service.as_bytes());
        let result = client.call(CHECK, &message).await;
        assert_eq!(result.status, Some(0));
        assert_eq!(result.answers, [&[8, 1][..]], "serving");
    }
    let nobody = client.call(CHECK, &bytes_field(1, b"nobody")).await;
    assert_eq!(nobody.status, Some(5));
    let list = client.call("/grpc.health.v1.Health/List", b"").await;
    assert_eq!(read(list.answers[0].clone()).len(), 7);
}

#[tokio::test]
async fn a_health_watch_reports_the_shutdown_and_calls_in_progress_finish() {
    let serving = serve_policy(POLICY).await;
    let mut client = serving.connect().await;
    let (watched, mut message) = client.open(WATCH).await;
    message.send_data(framed(b"").into(), true).unwrap();
    let mut watched = watched.await.unwrap().into_body();
    assert_eq!(watched.data().await.unwrap().unwrap(), framed(&[8, 1]));
    // A call that starts before the shutdown and is completed after it.
    let (response, mut slow) = client.open(SHOULD_RATE_LIMIT).await;
    let message = framed(&request(
        "d",
        &[super::client::Descriptor::new(&[("a", "b")])],
        0,
    ));
    slow.send_data(Bytes::copy_from_slice(&message[..7]), false)
        .unwrap();
    // The reply to a later call means that the server has seen the earlier one.
    client.call(CHECK, b"").await;
    let run = serving.start_stopping();
    assert_eq!(watched.data().await.unwrap().unwrap(), framed(&[8, 2]));
    assert!(watched.data().await.is_none());
    let trailers = watched.trailers().await.unwrap().unwrap();
    assert_eq!(trailers["grpc-status"], "14");
    slow.send_data(Bytes::copy_from_slice(&message[7..]), true)
        .unwrap();
    let result = ending(response).await.unwrap();
    assert_eq!(result.status, Some(0));
    assert_eq!(
        super::client::RlsResponse::read(&result.answers[0]).overall,
        OK
    );
    client.wait_closed().await.unwrap();
    assert_eq!(run.await.unwrap().aborted, 0);
}

#[tokio::test]
async fn reflection_answers_several_requests_on_a_stream_in_both_versions() {
    let serving = serve_policy(POLICY).await;
    let mut client = serving.connect().await;
    for version in ["v1", "v1alpha"] {
        let path = format!("/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo");
        let (response, mut requests) = client.open(&path).await;
        for message in [
            bytes_field(7, b""),
            bytes_field(4, b"envoy.service.ratelimit.v3.RateLimitService"),
            bytes_field(3, b"nowhere.proto"),
        ] {
            requests.send_data(framed(&message).into(), false).unwrap();
        }
        requests.send_data(Bytes::new(), true).unwrap();
        let result = ending(response).await.unwrap();
        assert_eq!((result.status, result.answers.len()), (Some(0), 3));
        let kinds: Vec<u64> = result
            .answers
            .into_iter()
            .map(|answer| read(answer).last().unwrap().0)
            .collect();
        assert_eq!(kinds, [6, 4, 7]);
    }
    // Streaming calls on one connection are bounded.
    let mut open = Vec::new();
    for _ in 0..16 {
        let (response, requests) = client.open(WATCH).await;
        open.push((response, requests));
    }
    let (response, _questions) = client.open(WATCH).await;
    assert_eq!(ending(response).await.unwrap().status, Some(8));
}

#[tokio::test]
async fn invalid_calls_are_refused_with_http_or_grpc_status() {
    let serving = serve_policy(POLICY).await;
    let mut client = serving.connect().await;
    let unknown = client.call("/nowhere.Service/Method", b"").await;
    assert_eq!((unknown.http, unknown.status), (200, Some(12)));
    assert!(unknown.message.contains("reflection"), "{unknown:?}");
    let message = Bytes::from(framed(&request("d", &[], 0)));
    for (content_type, http) in [
        ("application/json", 415),
        ("application/grpc-web", 415),
        ("application/grpc+json", 415),
        ("application/grpc+proto", 200),
        ("application/grpc;charset=x", 200),
    ] {
        let call = client.call_with(SHOULD_RATE_LIMIT, message.clone(), content_type, true);
        assert_eq!(call.await.unwrap().http, http, "{content_type}");
    }
    let two = [framed(b"").as_slice(), &framed(b"")].concat();
    let (compressed, cut) = (vec![1, 0, 0, 0, 0], vec![0, 0, 0, 0, 9, 1]);
    let long = [0, 0, 1, 0, 1];
    for (body, status) in [
        (Vec::new(), 3),
        (vec![0; 4], 3),
        (two, 3),
        (cut, 3),
        (compressed, 12),
        (long.to_vec(), 8),
    ] {
        let call = client.call_with(SHOULD_RATE_LIMIT, body.into(), "application/grpc", true);
        assert_eq!(call.await.unwrap().status, Some(status));
    }
    // The longest allowed message is read, whatever it contains.
    let longest = framed(&bytes_field(9, &vec![0; 65_532]));
    assert_eq!(longest.len(), 65_541);
    let call = client.call_with(SHOULD_RATE_LIMIT, longest.into(), "application/grpc", true);
    let result = call.await.unwrap();
    assert_eq!(result.message, "domain: must not be empty");
}
