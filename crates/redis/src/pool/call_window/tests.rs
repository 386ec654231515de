//! How the window follows a server, in simulated time.

use super::*;
use std::sync::Arc;
use tokio::task::JoinSet;

const DEADLINE: Duration = Duration::from_millis(150);

/// Lets simulated time pass.
async fn elapse(time: Duration) {
    let never = std::future::pending::<()>();
    let _elapsed = tokio::time::timeout(time, never).await;
}

/// A server that replies to one call after the other, each after `service`. Returns how many of `callers` calls at once miss
/// the deadline, and how many were refused.
async fn run(callers: usize, service: Duration, size: usize) -> (usize, usize) {
    let window = Arc::new(CallWindow::new(4_096, DEADLINE));
    if size > INITIAL_SIZE {
        window.free.add_permits(size - INITIAL_SIZE);
        window.size.store(size, Ordering::Relaxed);
    }
    let server = Arc::new(tokio::sync::Mutex::new(()));
    let calls: JoinSet<_> = (0..callers)
        .map(|_| {
            let (window, server) = (Arc::clone(&window), Arc::clone(&server));
            async move {
                let (mut late, mut refused) = (0, 0);
                for _ in 0..20 {
                    let mut deadline = CallDeadline::new(DEADLINE);
                    let Ok(permit) = window.enter(&mut deadline).await else {
                        refused += 1;
                        continue;
                    };
                    let reply = async {
                        let _turn = server.lock().await;
                        elapse(service).await;
                    };
                    let in_time = tokio::time::timeout_at(deadline.until(), reply).await;
                    late += usize::from(in_time.is_err());
                    let failure = in_time.err().map(|_| StoreErrorKind::TimedOut);
                    permit.complete(failure);
                }
                (late, refused)
            }
        })
        .collect();
    let (late, refused): (Vec<usize>, Vec<usize>) = calls.join_all().await.into_iter().unzip();
    (late.iter().sum(), refused.iter().sum())
}

/// 500 calls under way were all sent at once. A server that does 10 in a millisecond let most of them miss the deadline of
/// 15 ms, the breaker opened, and a healthy server made 0 to 33 % of the decisions. Here everything is ten times slower,
/// because tokio's timers have a resolution of 1 ms.
#[tokio::test(start_paused = true)]
async fn a_busy_server_that_replies_misses_no_deadline() {
    let service = Duration::from_millis(1);
    assert_eq!(run(500, service, 0).await, (0, 0));
    let (without_window, _) = run(500, service, 4_096).await;
    assert!(without_window > 5_000, "{without_window} of 10,000");
}

/// The window is too large for a server that has become slower, until it has shrunk.
#[tokio::test(start_paused = true)]
async fn the_window_shrinks_when_replies_are_slow() {
    let (late, _) = run(40, Duration::from_millis(10), 0).await;
    assert!(late < 100, "{late} of 800");
}

#[tokio::test(start_paused = true)]
async fn the_window_grows_when_replies_are_fast_however_far_the_server_is() {
    let window = Arc::new(CallWindow::new(4_096, DEADLINE));
    let calls: JoinSet<_> = (0..1_000)
        .map(|_| {
            let window = Arc::clone(&window);
            async move {
                for _ in 0..20 {
                    let mut deadline = CallDeadline::new(DEADLINE);
                    let permit = window.enter(&mut deadline).await.unwrap();
                    elapse(Duration::from_millis(100)).await;
                    permit.complete(None);
                }
            }
        })
        .collect();
    calls.join_all().await;
    assert!(window.size.load(Ordering::Relaxed) > 500);
    assert_eq!(window.waiting(), 0);
}

/// I-04: a call that waits to be sent to a server that no longer replies is over when the sent ones are.
#[tokio::test(start_paused = true)]
async fn i04_waiting_calls_end_with_the_first_that_gets_no_reply() {
    let window = Arc::new(CallWindow::new(4_096, DEADLINE));
    let begun = Instant::now();
    let calls: JoinSet<_> = (0..500)
        .map(|_| {
            let window = Arc::clone(&window);
            async move {
                let mut deadline = CallDeadline::new(DEADLINE);
                match window.enter(&mut deadline).await {
                    Ok(permit) => {
                        elapse(deadline.until() - Instant::now()).await;
                        permit.complete(Some(StoreErrorKind::TimedOut));
                    }
                    Err(error) => assert_eq!(error.kind(), StoreErrorKind::Busy),
                }
                begun.elapsed()
            }
        })
        .collect();
    let slack = Duration::from_millis(1);
    let times = calls.join_all().await;
    assert!(times.iter().all(|time| *time <= DEADLINE + slack));
}

/// I-04: a decision of several calls waits no longer than a decision of one call.
#[tokio::test(start_paused = true)]
async fn i04_the_waits_of_one_decision_are_bounded_together() {
    let window = CallWindow::new(1, DEADLINE);
    let mut first = CallDeadline::new(DEADLINE);
    let begun = first.until();
    let max_wait = DEADLINE * MAX_WAIT_DEADLINES;
    let waited = max_wait - Duration::from_millis(1);
    first.add_wait(waited);
    assert_eq!(first.until(), begun + waited);
    let _sent = window
        .enter(&mut CallDeadline::new(DEADLINE))
        .await
        .unwrap();
    let before = Instant::now();
    let error = window.enter(&mut first).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Busy);
    assert!(before.elapsed() <= Duration::from_millis(2));
    assert_eq!(window.waiting(), 0, "a call that failed does not wait");
}

/// A client that left while its call was on the way freed its place at once. Clients that sent calls and left could keep any
/// number of calls on the way, and a saturated server missed the deadlines of everybody else.
#[tokio::test(start_paused = true)]
async fn callers_that_leave_keep_their_places_until_their_deadlines() {
    let window = CallWindow::new(8, DEADLINE);
    let start = Instant::now();
    let mut sent_at = Vec::new();
    for _ in 0..40 {
        let mut deadline = CallDeadline::new(DEADLINE);
        let permit = window.enter(&mut deadline).await.unwrap();
        sent_at.push(Instant::now());
        drop(permit);
    }
    // Eight calls in every deadline, and all places come back.
    for (index, at) in sent_at.iter().enumerate() {
        let rounds = u32::try_from(index / 8).unwrap();
        let early = DEADLINE * rounds;
        let late = early + Duration::from_millis(u64::from(rounds));
        assert!(
            (early..=late).contains(&(*at - start)),
            "{index}: {:?}",
            *at - start
        );
    }
    elapse(DEADLINE * 2).await;
    let mut permits = Vec::new();
    for _ in 0..8 {
        permits.push(
            window
                .enter(&mut CallDeadline::new(DEADLINE))
                .await
                .unwrap(),
        );
    }
    assert_eq!(window.free.available_permits(), 0);
    for permit in permits {
        permit.complete(None);
    }
    // Negative control: calls that are complete keep nothing.
    assert_eq!(window.free.available_permits(), 8);
}
