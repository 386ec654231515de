//! What the study prints: definitions first, then tables whose rows are the defined measures.
//!
//! Must not know: how anything was measured beyond the names of the measures.

use crate::candidates::Limit;
use crate::counts::DecisionCounts;
use crate::table::{Table, count, percent};
use crate::traffic::TrafficKind;
use crate::workers::ByKind;

/// What the words in the tables mean.
pub(crate) const DEFINITIONS: &str = "\
Offered (the published method): every arrival counts, whatever is decided. For a request at t,
  exact     = the source's arrivals in (t - window, t], this one included, by a log of every arrival;
  estimate  = previous x (window - elapsed) / window + current, by the counter, this one included;
  over      = above the limit: exact > limit for the truth, estimate > limit for the counter;
  wrong     = the two disagree; a wrong admit is truly over and let through, a wrong reject within and rejected;
  error     = |estimate - exact| / exact; its mean is over all requests, and again over the requests at which exact
              was at least half the limit;
  bias      = the sum of (estimate - exact) over the sum of exact, over all requests;
  beyond    = wrong admits at which exact was more than 15 % above the limit;
  a source allowed throughout was over at some request and never rejected; a source below the limit was never over.
Enforced (what the product does): a refused request spends nothing. Counter and log decide on the same arrivals, each on
  its own state; differing = one admits and the other refuses; most let through = the largest number of requests that the
  counter admitted in any window of the limit's length, in percent of the limit (theory: below 200 %).";

/// A measure, what was published for it, and what was found here.
type Row = (&'static str, &'static str, String);

/// The main table: each measure beside what was published.
pub(crate) fn main_table(limit: &Limit, tally: &DecisionCounts) -> Table {
    let title = format!(
        "{}, {} requests from {} sources",
        name(limit),
        count(tally.requests),
        count(tally.sources)
    );
    let mut table = Table::new(title, ["measure", "published", "here"]);
    let rows = of_requests(limit, tally)
        .into_iter()
        .chain(of_sources(limit, tally))
        .chain(of_enforcing(limit, tally));
    for (measure, published, here) in rows {
        table.row([measure.to_owned(), published.to_owned(), here]);
    }
    table
}

fn of_requests(limit: &Limit, tally: &DecisionCounts) -> [Row; 11] {
    let found = &tally.offered;
    let share = |part| of(part, tally.requests);
    let worst = |ppb: u64| percent(ppb as f64, 1e9);
    let worst_admit = above(limit, found.worst_wrong_admit);
    [
        ("requests truly over the limit", "", share(found.truly_over)),
        ("wrong decisions", "0.003 %", share(tally.wrong())),
        ("– wrong admits", "", share(found.wrong_admits)),
        ("– wrong rejects", "", share(found.wrong_rejects)),
        (
            "– wrong admits beyond 15 %",
            "none",
            share(found.wrong_admits_beyond),
        ),
        (
            "– worst wrong admit, above the limit by",
            "< 15 %",
            worst_admit,
        ),
        ("mean error, all requests", "6 %", mean_error(tally)),
        ("mean error, from half the limit on", "", near_error(tally)),
        ("bias", "", bias(tally)),
        (
            "worst error, all requests",
            "",
            worst(found.worst_error_ppb),
        ),
        (
            "worst error, from half the limit on",
            "",
            worst(found.near_worst_error_ppb),
        ),
    ]
}

fn of_sources(limit: &Limit, tally: &DecisionCounts) -> [Row; 6] {
    let found = &tally.offered;
    let below = tally.sources - found.sources_over;
    let worst = above(limit, found.worst_never_caught);
    [
        ("sources over the limit", "", count(found.sources_over)),
        (
            "– with a wrong admit",
            "",
            count(found.sources_wrongly_admitted),
        ),
        (
            "– allowed throughout",
            "3",
            count(found.sources_never_caught),
        ),
        ("– worst of those, above the limit by", "< 15 %", worst),
        ("sources below the limit", "", count(below)),
        (
            "– rejected at least once",
            "none",
            of(found.sources_below_rejected, below),
        ),
    ]
}

fn of_enforcing(limit: &Limit, tally: &DecisionCounts) -> [Row; 7] {
    let found = &tally.enforced;
    let ratio = percent(found.admitted as f64, found.admitted_by_log as f64);
    [
        (
            "enforced: differing decisions",
            "",
            of(tally.differing(), tally.requests),
        ),
        ("– only the counter admits", "", count(found.only_candidate)),
        ("– only the log admits", "", count(found.only_log)),
        ("admitted by the counter", "", count(found.admitted)),
        ("admitted by the log", "", count(found.admitted_by_log)),
        ("– counter to log", "", ratio),
        (
            "most let through in a window",
            "",
            most_let_through(limit, tally),
        ),
    ]
}

/// By how much a count is above the limit, if it is.
fn above(limit: &Limit, n: u64) -> String {
    match n.checked_sub(u64::from(limit.limit)) {
        None | Some(0) => "none".to_owned(),
        Some(excess) => percent(excess as f64, f64::from(limit.limit)),
    }
}

/// Who the faults belong to.
pub(crate) fn kinds_table(by_kind: &ByKind, limit: &Limit) -> Table {
    let title = format!("{}, by kind of source", name(limit));
    wide(
        title,
        "kind",
        TrafficKind::ALL
            .iter()
            .zip(by_kind)
            .map(|(kind, tally)| (kind.name().to_owned(), *limit, tally)),
    )
}

/// A table with a line for each case.
pub(crate) fn wide<'a>(
    title: impl Into<String>,
    first: &str,
    cases: impl Iterator<Item = (String, Limit, &'a DecisionCounts)>,
) -> Table {
    let mut table = Table::new(
        title,
        [
            first,
            "requests",
            "truly over",
            "wrong admits",
            "wrong rejects",
            "wrong",
            "mean error",
            "from half",
            "beyond 15 %",
            "below, rejected",
            "enforced: differing",
            "counter to log",
            "most let through",
        ],
    );
    for (name, limit, tally) in cases {
        let found = &tally.offered;
        let enforced = &tally.enforced;
        table.row([
            name,
            count(tally.requests),
            percent(found.truly_over as f64, tally.requests as f64),
            count(found.wrong_admits),
            count(found.wrong_rejects),
            percent(tally.wrong() as f64, tally.requests as f64),
            mean_error(tally),
            near_error(tally),
            count(found.wrong_admits_beyond),
            count(found.sources_below_rejected),
            percent(tally.differing() as f64, tally.requests as f64),
            percent(enforced.admitted as f64, enforced.admitted_by_log as f64),
            most_let_through(&limit, tally),
        ]);
    }
    table
}

/// `100 per 60 s`.
pub(crate) fn name(limit: &Limit) -> String {
    format!(
        "{} per {} s",
        count(u64::from(limit.limit)),
        limit.window_seconds()
    )
}

fn of(part: u64, whole: u64) -> String {
    match part {
        0 => "none".to_owned(),
        _ => format!("{} ({})", percent(part as f64, whole as f64), count(part)),
    }
}

fn mean_error(tally: &DecisionCounts) -> String {
    percent(tally.offered.error_ppb as f64 / 1e9, tally.requests as f64)
}

fn near_error(tally: &DecisionCounts) -> String {
    let found = &tally.offered;
    percent(
        found.near_error_ppb as f64 / 1e9,
        found.near_requests as f64,
    )
}

fn bias(tally: &DecisionCounts) -> String {
    let found = &tally.offered;
    let excess = (found.too_much as f64 - found.too_little as f64) / 1e6;
    percent(excess, found.exact_total as f64)
}

fn most_let_through(limit: &Limit, tally: &DecisionCounts) -> String {
    percent(tally.enforced.most_in_window as f64, f64::from(limit.limit))
}
