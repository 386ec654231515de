//! So many at once: permits that come back by themselves, even from a thread that panics.

use std::sync::atomic::{AtomicU64, Ordering};

use tollgate::Gate;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let gate = Gate::of(2).name("reports").build()?;
    let (done, refused) = (AtomicU64::new(0), AtomicU64::new(0));

    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| match gate.enter("tenant-7") {
                Ok(_permit) => {
                    // The permit is held to the end of this arm, whichever way it is left.
                    done.fetch_add(1, Ordering::Relaxed);
                }
                Err(_full) => {
                    refused.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    let (done, refused) = (done.into_inner(), refused.into_inner());
    println!("{done} reports made, {refused} refused because two were under way");
    assert_eq!((done + refused, gate.free("tenant-7")?), (8, 2));

    let held = gate.enter_n("tenant-7", 2)?;
    if let Err(error) = gate.enter("tenant-7") {
        println!("{error}");
    }
    drop(held);
    assert_eq!(gate.free("tenant-7")?, 2);
    Ok(())
}
