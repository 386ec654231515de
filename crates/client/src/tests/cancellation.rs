//! Dropped futures and permits: none is lost, none is doubled.

use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use proptest::prelude::*;
use tollgate_core::Nanos;
use tollgate_store::ManualClock;

use super::support::{NOW, fast, poll_once};
use crate::{Acquire, PacePermit, PaceRequest, PacerSettings, RateLimitInfo, SharedPacer};

type TestClock = Arc<ManualClock>;

fn shared(settings: PacerSettings) -> (SharedPacer<TestClock>, TestClock) {
    let clock = Arc::new(ManualClock::at(NOW));
    (SharedPacer::with_clock(settings, Arc::clone(&clock)), clock)
}

fn one_per_second() -> PacerSettings {
    let settings = PacerSettings::default().with_max_wait(Nanos::from_secs(86_400));
    settings.with_initial_rate(1.0).unwrap()
}

fn request() -> PaceRequest<'static> {
    PaceRequest::new("api.example.com")
}

fn in_flight(pacer: &SharedPacer<TestClock>) -> u32 {
    pacer
        .status()
        .iter()
        .map(|partition| partition.in_flight)
        .sum()
}

#[derive(Clone, Debug)]
enum Step {
    Acquire,
    DropFuture(usize),
    DropPermit(usize),
    Finish(usize),
    Advance(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => Just(Step::Acquire),
        1 => (0..8_usize).prop_map(Step::DropFuture),
        1 => (0..8_usize).prop_map(Step::DropPermit),
        1 => (0..8_usize).prop_map(Step::Finish),
        2 => (0..3_000_u64).prop_map(Step::Advance),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn any_order_of_drops_loses_and_doubles_no_permit(steps in prop::collection::vec(step(), 1..80)) {
        let (pacer, clock) = shared(one_per_second());
        let mut futures: Vec<Pin<Box<Acquire<TestClock>>>> = Vec::new();
        let mut permits: Vec<PacePermit<TestClock>> = Vec::new();
        for step in steps {
            match step {
                Step::Acquire => futures.push(Box::pin(pacer.acquire(&request()))),
                Step::DropFuture(at) if at < futures.len() => drop(futures.remove(at)),
                Step::DropPermit(at) if at < permits.len() => drop(permits.remove(at)),
                Step::Finish(at) if at < permits.len() => {
                    prop_assert_eq!(permits.remove(at).finish(200, &RateLimitInfo::default()), None);
                }
                Step::Advance(millis) => clock.advance(Nanos::from_millis(millis)),
                _ => {}
            }
            pacer.tick();
            let mut waiting = Vec::new();
            for mut future in futures.drain(..) {
                match poll_once(&mut future) {
                    Poll::Ready(permit) => permits.push(permit.unwrap()),
                    Poll::Pending => waiting.push(future),
                }
            }
            futures = waiting;
            prop_assert_eq!(pacer.waiting(), futures.len());
            prop_assert_eq!(in_flight(&pacer) as usize, permits.len());
        }
        drop((futures, permits));
        prop_assert_eq!((pacer.waiting(), in_flight(&pacer)), (0, 0));
    }
}

#[test]
fn a_permit_that_was_granted_and_not_taken_goes_to_the_next() {
    let (pacer, clock) = shared(one_per_second());
    let _first = Box::pin(pacer.acquire(&request()));
    let mut dropped = Box::pin(pacer.acquire(&request()));
    let mut next = Box::pin(pacer.acquire(&request()));
    assert!(poll_once(&mut dropped).is_pending() && poll_once(&mut next).is_pending());
    // Slow clients vary their gaps by half.
    clock.advance(Nanos::from_millis(1_500));
    pacer.tick();
    drop(dropped);
    pacer.tick();
    assert!(poll_once(&mut next).is_ready());
}

#[test]
fn a_permit_dropped_before_the_request_was_sent_is_not_spent() {
    let (pacer, _clock) = shared(one_per_second());
    drop(pacer.acquire(&request()));
    for _ in 0..5 {
        let mut future = Box::pin(pacer.acquire(&request()));
        let Poll::Ready(Ok(permit)) = poll_once(&mut future) else {
            panic!()
        };
        drop(permit);
    }
    let mut future = Box::pin(pacer.acquire(&request()));
    let Poll::Ready(Ok(mut permit)) = poll_once(&mut future) else {
        panic!()
    };
    permit.mark_sent();
    drop(permit);
    // The server may have counted it.
    assert!(poll_once(&mut Box::pin(pacer.acquire(&request()))).is_pending());
}

#[test]
fn the_thread_wakes_tasks_on_a_clock_that_runs() {
    let pacer = SharedPacer::new(fast().with_initial_rate(200.0).unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let permits = runtime.block_on(async {
        let mut count = 0;
        for _ in 0..5 {
            let mut permit = pacer.acquire(&request()).await.unwrap();
            permit.mark_sent();
            count += 1;
        }
        count
    });
    assert_eq!((permits, pacer.waiting()), (5, 0));
}
