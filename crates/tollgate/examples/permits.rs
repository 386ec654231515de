//! Concurrency limits: permits are released on drop, even if a thread panics.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate::ConcurrencyLimiter;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let gate = ConcurrencyLimiter::builder(2).name("reports").build()?;
    let (done, refused) = (AtomicU64::new(0), AtomicU64::new(0));

    // No thread releases its permit before all threads have tried.
    let all_tried = Barrier::new(8);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let permit = gate.acquire("tenant-7");
                all_tried.wait();
                let count = if permit.is_ok() { &done } else { &refused };
                count.fetch_add(1, Ordering::Relaxed);
                // The permit is dropped here. A panic would drop it too.
            });
        }
    });
    let (done, refused) = (done.into_inner(), refused.into_inner());
    println!("{done} reports made, {refused} refused because two were under way");
    assert_eq!(
        (done, refused, gate.available_permits("tenant-7")?),
        (2, 6, 2)
    );

    let held = gate.acquire_n("tenant-7", 2)?;
    if let Err(error) = gate.acquire("tenant-7") {
        println!("{error}");
    }
    drop(held);
    assert_eq!(gate.available_permits("tenant-7")?, 2);
    Ok(())
}
