//! Several limits on one key, and several limiters in one decision. If one denies, none is charged.

use tollgate::{
    Calendar, FixedWindow, Limiter, Rate, TokenBucket, UtcOffset, Window, check_all, refund_all,
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let month = Window::Calendar(Calendar::Month, UtcOffset::UTC);
    let plan = Limiter::builder()
        .limit(
            "per-minute",
            TokenBucket::builder(Rate::per_minute(60)).burst(3),
        )
        .limit("per-month", FixedWindow::builder(10_000, month))
        .build()?;

    let mut admitted = 0;
    while let Ok(admission) = plan.spend("alice", 1) {
        admitted += 1;
        for status in admission.limits() {
            print!(
                "{}: {} of {}   ",
                status.name, status.remaining, status.limit
            );
        }
        println!();
    }
    if let Err(error) = plan.peek_n("alice", 1) {
        println!("{error}");
    }
    // The limit per minute denied, so the limit per month was not charged.
    let left = plan.peek("alice")?.limits().map(|s| s.remaining).max();
    assert_eq!(left, Some(10_000 - admitted));

    // One decision over two limiters: the plan of a user, and a limit for all users together.
    let everyone = Limiter::per_second(2)
        .name("everyone")
        .share_table_with(&plan)
        .build()?;
    for user in ["bob", "carol", "dave"] {
        let items = [plan.for_key(user), everyone.for_key("")];
        match check_all(&items) {
            Ok(admission) => {
                let tightest = admission.tightest();
                println!(
                    "{user} goes ahead; {}: {} of {} left",
                    tightest.name, tightest.remaining, tightest.limit
                );
                // Carol cancels: her charges are refunded, so there is room for Dave.
                if user == "carol" {
                    refund_all(&items, admission)?;
                }
            }
            Err(error) => println!("{user} does not: {error}"),
        }
    }
    Ok(())
}
