//! One connection: a client on this side, the server on the other, both ways at once, until either ends or a test says so.
//!
//! Must not know: how a way is made worse.

use std::sync::Arc;

use tokio::net::TcpStream;
use tokio::sync::watch;

use super::flow::{self, ForwardedCommand};
use super::proxy_state::{ProxyState, Settings};
use super::toxics::{CloseMode, Direction};

/// Passes bytes both ways until the end.
pub(super) async fn pass(mut near: TcpStream, number: u64, shared: Arc<ProxyState>) {
    let settings = shared.settings.subscribe();
    let began = *settings.borrow();
    match TcpStream::connect(began.upstream).await {
        Ok(mut far) => {
            // Slow is only what a test wants to be slow.
            let is_brisk = near.set_nodelay(true).is_ok() && far.set_nodelay(true).is_ok();
            let ending = if is_brisk {
                both_ways(&mut near, &mut far, number, &shared, settings).await
            } else {
                CloseMode::Reset
            };
            if ending == CloseMode::Reset {
                reset(&near);
                reset(&far);
            }
        }
        Err(_unreached) => {
            shared.note(|happened| happened.counters.unreached += 1);
            reset(&near);
        }
    }
    // Both are closed before anybody is told that they are.
    drop(near);
    shared.note(|happened| happened.open.remove(&number));
}

/// Lets the connection end with a reset when it is dropped.
pub(super) fn reset(stream: &TcpStream) {
    // One that is gone already has ended with less.
    let _gone = stream.set_zero_linger();
}

async fn both_ways(
    near: &mut TcpStream,
    far: &mut TcpStream,
    number: u64,
    shared: &Arc<ProxyState>,
    settings: watch::Receiver<Settings>,
) -> CloseMode {
    let ordered = ordered(settings);
    let asked = ForwardedCommand::default();
    let (from_near, to_near) = near.split();
    let (from_far, to_far) = far.split();
    let there = flow::FlowOptions::new(Direction::There, number, shared, &asked);
    let back = flow::FlowOptions::new(Direction::Back, number, shared, &asked);
    let passing =
        async { tokio::try_join!(there.run(from_near, to_far), back.run(from_far, to_near)) };
    tokio::select! {
        ending = ordered => ending,
        passed = passing => passed.err().unwrap_or(CloseMode::Close),
    }
}

/// Waits until a test wants this connection to end.
async fn ordered(mut settings: watch::Receiver<Settings>) -> CloseMode {
    let began = *settings.borrow();
    loop {
        if settings.changed().await.is_err() {
            return CloseMode::Reset;
        }
        let now = *settings.borrow_and_update();
        if now.is_over || now.resets > began.resets {
            return CloseMode::Reset;
        }
        if now.closes > began.closes {
            return CloseMode::Close;
        }
    }
}
