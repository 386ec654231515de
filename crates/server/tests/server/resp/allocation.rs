//! In steady state commands allocate nothing, fed or over a socket. The allocator of this binary counts per thread.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tollgate_server::resp::{Pipeline, RespLimits};
use tollgate_testkit::allocation::{CountingAllocator, calls};

use super::{command, listen, server};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

#[test]
fn control_the_allocator_counts() {
    assert!(calls(|| drop(std::hint::black_box(vec![1]))) >= 2);
}

/// Sixteen commands of every family, some admitted and some denied.
fn pipeline() -> Vec<u8> {
    let commands: [&[&str]; 4] = [
        &["CL.THROTTLE", "alice", "15", "30", "60", "1"],
        &["THROTTLE", "alice", "16", "30", "60"],
        &["GCRA", "alice", "15", "30", "60"],
        &["PING"],
    ];
    commands
        .iter()
        .flat_map(|words| command(words).repeat(4))
        .collect()
}

#[test]
fn warm_pipelined_commands_allocate_nothing() {
    let (server, _clock) = server();
    let mut session = server.session(None);
    let pipeline = pipeline();
    let mut input = pipeline.clone();
    let mut out = Vec::with_capacity(4_096);
    let mut feed = || {
        input.copy_from_slice(&pipeline);
        out.clear();
        assert_eq!(
            server
                .feed(&mut session, &mut input, &mut Pipeline::new(), &mut out)
                .consumed,
            pipeline.len()
        );
        assert!(out.ends_with(b"+PONG\r\n"));
    };
    feed();
    assert_eq!(calls(|| (0..100).for_each(|_| feed())), 0);
}

/// The whole path: the runtime, the connection and the client are on this thread.
#[test]
fn warm_pipelined_commands_allocate_nothing_over_a_socket_either() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let pipeline = pipeline();
    let mut answer = vec![0; 4_096];
    // Keep the handle, because dropping it stops the server.
    let (_listening, mut client) = runtime.block_on(async {
        let listening = listen(server().0, RespLimits::default()).await;
        let client = listening.connect().await.0;
        (listening, client)
    });
    let mut rounds = |count: usize| {
        runtime.block_on(async {
            for _ in 0..count {
                // One split in the middle of a command, so that its start has to be kept.
                let (first, second) = pipeline.split_at(100);
                client.write_all(first).await.unwrap();
                tokio::task::yield_now().await;
                client.write_all(second).await.unwrap();
                let mut answers = 0;
                while answers < 16 {
                    let read = client.read(&mut answer).await.unwrap();
                    let begins = |byte: &&u8| matches!(byte, b'*' | b'+');
                    answers += answer[..read].iter().filter(begins).count();
                }
            }
        });
    };
    // The bucket runs empty on the way: long replies and short ones.
    rounds(20);
    // Entering the runtime costs the same for any number of commands.
    let entering = calls(|| rounds(1));
    assert_eq!(calls(|| rounds(100)), entering);
}
