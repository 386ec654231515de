//! Writes the series of overload control: the limit, who waits, and what is shed of each class.
//!
//! Labels are names of the policy, which bounds their number. Must not know: HTTP, how load is measured.

use super::exposition::MetricsPage;
use super::families;
use crate::overload::OverloadStatus;

pub(super) fn write_overload(page: &mut MetricsPage, status: &OverloadStatus) {
    page.family(&families::OVERLOAD_LIMIT)
        .add(&[], status.limit.into());
    page.family(&families::OVERLOAD_IN_FLIGHT)
        .add(&[], status.in_flight.into());
    page.family(&families::OVERLOAD_QUEUED)
        .add(&[], status.queued as u64);
    let mut percent = page.family(&families::OVERLOAD_SHED_PERCENT);
    for (class, share) in &status.shed_percent {
        percent.add(&[class], (*share).into());
    }
    let mut shed = page.family(&families::OVERLOAD_SHED);
    for count in &status.shed {
        let mechanism = count.mechanism.name();
        shed.add(&[&count.class, mechanism, "enforce"], count.enforced);
        shed.add(&[&count.class, mechanism, "shadow"], count.shadow);
    }
}
