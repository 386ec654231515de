//! A Redis that is missing, disappears or does not answer: never a denial, and the error says whether it may have charged.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use tollgate::redis::Redis;
use tollgate::{Error, Limiter, StoreError, StoreErrorKind};

use super::{LONG, eventually, options, server};

fn store_error<T: std::fmt::Debug>(answer: Result<T, Error>) -> StoreError {
    match answer {
        Err(Error::Store(error)) => error,
        other => panic!("expected an error of the store, and got {other:?}"),
    }
}

#[tokio::test]
async fn a_lost_server_is_not_a_denial() {
    let (server, redis) = server().await;
    let limiter = Limiter::per_day(1).with_redis(&redis).build().unwrap();
    limiter.check("a").await.unwrap();
    drop(server);
    eventually(async || {
        let error = store_error(limiter.check("a").await);
        error.kind() == StoreErrorKind::Unreachable && !error.may_have_charged()
    })
    .await;
    assert!(!redis.is_connected());
    store_error(limiter.wait("a", LONG).await);
    store_error(limiter.until_ready("a").await);
    store_error(limiter.reserve("a", 1).await);
}

#[tokio::test]
async fn a_limiter_can_be_built_before_its_server_is_reachable() {
    let address = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    };
    let redis = Redis::connect(options(format!("redis://{address}")));
    let redis = redis.await.unwrap();
    let limiter = Limiter::per_day(1).with_redis(&redis).build().unwrap();
    let error = store_error(limiter.check("a").await);
    assert_eq!(error.kind(), StoreErrorKind::Unreachable);
    assert!(Redis::connect(options("nonsense")).await.is_err());
}

#[tokio::test]
async fn a_missing_reply_may_have_charged() {
    let (server, _redis) = server().await;
    let mut options = options(server.url());
    options.deadline = Duration::from_millis(200);
    let redis = Redis::connect(options).await.unwrap();
    eventually(async || redis.is_connected()).await;
    let limiter = Limiter::per_day(1).with_redis(&redis).build().unwrap();
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.write_all(b"CLIENT PAUSE 60000 ALL\r\n").unwrap();
    stream.read_exact(&mut [0; 5]).unwrap();
    let error = limiter.check("a").await.unwrap_err();
    assert!(error.may_have_charged(), "{error}");
    assert!(error.denial().is_none());
}
