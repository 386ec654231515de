//! Rendering header fields allocates nothing in steady state. The allocator of this binary, installed by `resp/allocation.rs`,
//! counts.

use tollgate_core::Nanos;
use tollgate_http::{Dialect, HeaderFields};
use tollgate_testkit::allocation::calls;

use super::{app, check};

const SEVERAL: &str = "
limits:
  - { name: all, rate: 1000/s }
  - { name: user, key: header.user, rate: 3/m, tiers: { by: header.plan, pro: 4/m } }
  - { name: app, key: header.user, rate: \"10/m + 5/m × header.seats, at most 30/m\", unit: tokens }
  - { name: day, key: [header.user, header.plan], rate: 5/d, algorithm: fixed_window }
  - { name: trial, key: header.user, rate: 1/m, mode: shadow }
";

#[test]
fn rendering_every_dialect_allocates_nothing_in_steady_state() {
    let says = [
        ("header.user", "carol"),
        ("header.plan", "pro"),
        ("header.seats", "2"),
    ];
    for dialect in Dialect::ALL {
        let (app, _clock) = app(SEVERAL);
        let app = app
            .with_dialects(dialect.into())
            .with_retry_jitter(Nanos::SECOND);
        let mut words = HeaderFields::new();
        let mut round = || {
            let decided = check(&app, &says, 1);
            app.service().fields(&decided, &mut words);
            decided.is_admitted()
        };
        // The first admission and the first denial allocate their buffers.
        let mut outcomes = Vec::with_capacity(16);
        assert!(calls(|| outcomes.push(round())) > 0);
        for _ in 0..5 {
            outcomes.push(round());
        }
        assert!(outcomes.contains(&true) && outcomes.contains(&false));
        for _ in 0..5 {
            let counted = calls(|| outcomes.push(round()));
            assert_eq!(counted, 0, "{dialect}");
        }
    }
}
