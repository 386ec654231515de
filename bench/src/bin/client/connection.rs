//! A connection to the server that asks for one decision after another.
//!
//! Must not know: when it is used.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tollgate_client::ResponseReader;

/// A kept-alive HTTP/1.1 connection.
pub(crate) struct Connection {
    stream: BufReader<TcpStream>,
    request: String,
}

impl Connection {
    pub(crate) async fn open(server: SocketAddr, key: &str) -> io::Result<Self> {
        let stream = TcpStream::connect(server).await?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream: BufReader::new(stream),
            request: format!(
                "GET /v1/check?header.x-api-key={key} HTTP/1.1\r\nhost: {server}\r\n\r\n"
            ),
        })
    }

    /// Asks once. Hands the response's fields to `reader`, and returns its status.
    pub(crate) async fn ask(&mut self, mut reader: Option<&mut ResponseReader>) -> io::Result<u16> {
        let stream = &mut self.stream;
        stream.write_all(self.request.as_bytes()).await?;
        let (mut status, mut length, mut line) = (None, 0, String::new());
        loop {
            line.clear();
            stream.read_line(&mut line).await?;
            let line = line.trim_end();
            if line.is_empty() {
                break;
            }
            let Some((name, value)) = line.split_once(": ") else {
                status = line.split(' ').nth(1).and_then(|code| code.parse().ok());
                continue;
            };
            let name = name.to_ascii_lowercase();
            if name == "content-length" {
                length = value.parse().unwrap_or(0);
            }
            if let Some(reader) = &mut reader {
                reader.field(&name, value.as_bytes());
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await?;
        status.ok_or_else(|| io::Error::other("a response without a status"))
    }
}
