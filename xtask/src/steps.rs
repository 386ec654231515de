//! Running named steps in order, with the time of each and a table at the end.
//!
//! Knows nothing of what a step does. Stops at the first failure: later steps would only hide it.

use std::time::Duration;

use crate::table;

/// One thing to do, with the name it is reported under.
pub(crate) struct Step {
    pub(crate) name: &'static str,
    pub(crate) run: Box<dyn FnOnce() -> Result<(), String>>,
}

impl Step {
    pub(crate) fn new(
        name: &'static str,
        run: impl FnOnce() -> Result<(), String> + 'static,
    ) -> Self {
        Self {
            name,
            run: Box::new(run),
        }
    }
}

/// Runs the steps until one fails or `limit` has passed since the first began. `elapsed` says how long ago that was.
pub(crate) fn run_all(
    steps: Vec<Step>,
    limit: Duration,
    elapsed: impl Fn() -> Duration,
) -> Result<(), String> {
    let mut rows = Vec::new();
    let mut failure = None;
    for step in steps {
        if failure.is_some() {
            rows.push(row(step.name, "not run", None));
            continue;
        }
        println!("\n== {}", step.name);
        let began = elapsed();
        let result = (step.run)();
        let took = elapsed().saturating_sub(began);
        rows.push(row(
            step.name,
            if result.is_ok() { "ok" } else { "FAILED" },
            Some(took),
        ));
        failure = result.err().map(|why| format!("{}: {why}", step.name));
        if failure.is_none() && elapsed() > limit {
            failure = Some(format!(
                "took {} after `{}`, and the limit for the whole is {}",
                seconds(elapsed()),
                step.name,
                seconds(limit)
            ));
        }
    }
    let verdict = if failure.is_some() { "FAILED" } else { "ok" };
    rows.push(row("total", verdict, Some(elapsed())));
    println!("\n{}", table::render(&rows));
    failure.map_or(Ok(()), Err)
}

fn row(name: &str, verdict: &str, took: Option<Duration>) -> Vec<String> {
    vec![
        name.to_owned(),
        took.map_or_else(String::new, seconds),
        verdict.to_owned(),
    ]
}

fn seconds(span: Duration) -> String {
    format!("{:.1} s", span.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::rc::Rc;

    const LIMIT: Duration = Duration::from_secs(60);

    #[test]
    fn the_first_failure_stops_the_rest_and_names_the_step() {
        let reached = Rc::new(Cell::new(false));
        let seen = Rc::clone(&reached);
        let steps = vec![
            Step::new("first", || Ok(())),
            Step::new("second", || Err("broken".to_owned())),
            Step::new("third", move || {
                seen.set(true);
                Ok(())
            }),
        ];
        let error = run_all(steps, LIMIT, || Duration::ZERO).unwrap_err();
        assert_eq!(error, "second: broken");
        assert!(!reached.get());
    }

    #[test]
    fn taking_too_long_is_a_failure_even_when_every_step_succeeds() {
        let clock = Rc::new(Cell::new(Duration::ZERO));
        let (fast, slow) = (Rc::clone(&clock), Rc::clone(&clock));
        let steps = vec![
            Step::new("fast", move || {
                fast.set(LIMIT);
                Ok(())
            }),
            Step::new("slow", move || {
                slow.set(LIMIT + Duration::from_secs(1));
                Ok(())
            }),
        ];
        let error = run_all(steps, LIMIT, || clock.get()).unwrap_err();
        assert!(
            error.contains("after `slow`"),
            "exactly the limit is still in time: {error}"
        );
    }

    #[test]
    fn all_well_is_all_well() {
        assert_eq!(
            run_all(vec![Step::new("one", || Ok(()))], LIMIT, || LIMIT),
            Ok(())
        );
    }
}
