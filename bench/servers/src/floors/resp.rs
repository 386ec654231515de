//! The floor under the Redis protocol: reads commands, which all have one length, and answers each with the same bytes.
//!
//! Must not know: what commands say.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

pub(super) async fn serve(
    address: SocketAddr,
    command_len: usize,
    answer: Vec<u8>,
) -> Result<(), String> {
    let listener = TcpListener::bind(address).await;
    let listener = listener.map_err(|error| format!("{address}: {error}"))?;
    // As many answers as one read can call for, so that answering is one write of a part of it.
    let most = READ_LEN / command_len.max(1) + 1;
    let answers: &'static [u8] = answer.repeat(most).leak();
    let answer_len = answer.len();
    // In a task, as ours: what runs in `block_on` itself is not on a worker.
    let accepting = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(echo(stream, command_len, answers, answer_len));
        }
    });
    accepting.await.map_err(|error| error.to_string())
}

const READ_LEN: usize = 64 * 1_024;

async fn echo(mut stream: TcpStream, command_len: usize, answers: &[u8], answer_len: usize) {
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let mut buffer = vec![0; READ_LEN];
    let mut begun = 0;
    while let Ok(read @ 1..) = stream.read(&mut buffer).await {
        let whole = (begun + read) / command_len;
        begun = (begun + read) % command_len;
        let bytes = answers.get(..whole * answer_len).unwrap_or_default();
        if stream.write_all(bytes).await.is_err() {
            return;
        }
    }
}
