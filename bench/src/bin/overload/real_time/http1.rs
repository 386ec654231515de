//! The little HTTP/1.1 that the client and the upstream need: heads of lines, bodies with a length.
//!
//! Must not know: when anything is sent.

use std::io;

use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _};

/// Reads a message and drops its body. Returns its first line, and whether its sender closes the connection. `None` at the end of
/// the stream.
pub(super) async fn read_message(
    stream: &mut (impl AsyncBufRead + Unpin),
) -> io::Result<Option<(String, bool)>> {
    let (mut first, mut length, mut closes) = (String::new(), 0, false);
    if stream.read_line(&mut first).await? == 0 {
        return Ok(None);
    }
    let mut line = String::new();
    loop {
        line.clear();
        if stream.read_line(&mut line).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let line = line.trim_end().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        match line.split_once(':') {
            Some(("content-length", value)) => length = value.trim().parse().unwrap_or(0),
            Some(("connection", value)) => closes = value.trim() == "close",
            Some(("transfer-encoding", _)) => {
                return Err(io::Error::other("a message without a length"));
            }
            _ => {}
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    Ok(Some((first.trim_end().to_owned(), closes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(mut text: &[u8]) -> Vec<Option<(String, bool)>> {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.unwrap().block_on(async {
            let mut messages = Vec::new();
            while let Ok(message) = read_message(&mut text).await {
                let is_end = message.is_none();
                messages.push(message);
                if is_end {
                    break;
                }
            }
            messages
        })
    }

    #[test]
    fn messages_end_with_their_bodies() {
        let text = b"HTTP/1.1 503 x\r\nContent-Length: 3\r\n\r\nabcGET / HTTP/1.1\r\nconnection: close\r\n\r\n";
        let first = Some(("HTTP/1.1 503 x".to_owned(), false));
        let second = Some(("GET / HTTP/1.1".to_owned(), true));
        assert_eq!(read(text), [first, second, None]);
    }

    #[test]
    fn a_head_or_a_body_that_is_cut_off_is_no_message() {
        assert_eq!(read(b"GET / HTTP/1.1\r\nhost: a\r\n"), []);
        assert_eq!(read(b"GET / HTTP/1.1\r\ncontent-length: 3\r\n\r\nab"), []);
    }
}
