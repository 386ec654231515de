//! `cargo xtask bench fleet`, also `bench --redis`: what being one of a fleet costs, beside what it is made of.
//!
//! Two programs, one after the other: engines in one process (`bench/src/bin/fleet`), and the server as people run it
//! (`bench/servers`, its part `fleet`). Must not know: what is measured.

use crate::bench::{program, servers};
use crate::workspace::Workspace;

/// The part that has the server in it.
const RLS: &str = "rls";

/// Everything, or the parts that are named.
pub(super) fn run(workspace: &Workspace, args: &[String]) -> Result<(), String> {
    let (in_process, with_server) = divided(args);
    if let Some(args) = in_process {
        program("fleet", &args)?;
    }
    if let Some(args) = with_server {
        servers::fleet(workspace, &args)?;
    }
    Ok(())
}

/// What each of the two programs is told, if it is to run.
fn divided(args: &[String]) -> (Option<Vec<String>>, Option<Vec<String>>) {
    let is_part = |word: &&String| !word.starts_with("--") && word.parse::<u64>().is_err();
    let flags: Vec<String> = args.iter().filter(|word| !is_part(word)).cloned().collect();
    let names_parts = args.iter().any(|word| is_part(&word));
    let names_rls = args.iter().any(|word| word == RLS);
    let others: Vec<String> = args.iter().filter(|word| *word != RLS).cloned().collect();
    let names_others = others.iter().any(|word| is_part(&word));
    (
        (!names_parts || names_others).then_some(others),
        (!names_parts || names_rls).then_some(flags),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn each_program_is_told_what_is_its_own() {
        let both = |flags| (Some(words(flags)), Some(words(flags)));
        assert_eq!(divided(&words("")), both(""));
        assert_eq!(
            divided(&words("--quick --rounds 3")),
            both("--quick --rounds 3")
        );
        assert_eq!(
            divided(&words("--quick rls")),
            (None, Some(words("--quick")))
        );
        assert_eq!(
            divided(&words("exact --quick")),
            (Some(words("exact --quick")), None)
        );
        let some = divided(&words("dead rls --rounds 5"));
        assert_eq!(
            some,
            (Some(words("dead --rounds 5")), Some(words("--rounds 5")))
        );
    }
}
