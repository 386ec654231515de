//! The floor under HTTP: bare hyper, which reads the same body and answers with the same head and body.
//!
//! No bounds, no times, no routes. Must not know: what is asked.

use std::convert::Infallible;
use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::header::{HeaderName, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};

/// An answer taken apart: the fields that we set ourselves, and the body.
struct Answer {
    fields: Vec<(HeaderName, HeaderValue)>,
    body: Bytes,
}

pub(super) async fn serve(address: SocketAddr, answer: &[u8]) -> Result<(), String> {
    let answer: &'static Answer = Box::leak(Box::new(Answer::read(answer)?));
    let listener = TcpListener::bind(address).await;
    let listener = listener.map_err(|error| format!("{address}: {error}"))?;
    let accepting = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(connection(stream, answer));
        }
    });
    accepting.await.map_err(|error| error.to_string())
}

async fn connection(stream: TcpStream, answer: &'static Answer) {
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let service = service_fn(move |request: Request<Incoming>| async move {
        // A body that breaks off ends the connection, whatever is answered.
        let body = request.into_body().collect().await;
        let _len = body.map_or(0, |body| body.to_bytes().len());
        Ok::<_, Infallible>(answer.respond())
    });
    let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    // The client has gone; there is nobody to tell.
    let _ended = connection.await;
}

impl Answer {
    fn read(answer: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(answer).map_err(|error| error.to_string())?;
        let (head, body) = text
            .split_once("\r\n\r\n")
            .ok_or("the answer has no body")?;
        let mut fields = Vec::new();
        for line in head.lines().skip(1) {
            let (name, value) = line.split_once(": ").ok_or("a field without a value")?;
            // hyper says these by itself.
            if name != "content-length" && name != "date" {
                let name = HeaderName::try_from(name).map_err(|error| error.to_string())?;
                let value = HeaderValue::from_str(value).map_err(|error| error.to_string())?;
                fields.push((name, value));
            }
        }
        Ok(Self {
            fields,
            body: Bytes::copy_from_slice(body.as_bytes()),
        })
    }

    fn respond(&self) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::new(self.body.clone()));
        for (name, value) in &self.fields {
            response.headers_mut().insert(name.clone(), value.clone());
        }
        response
    }
}
