//! Reading what a server says of itself in `INFO`.
//!
//! Must not know: how it is asked, what the numbers are for.

/// What a server has counted for one command.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CommandStats {
    /// How often it was called, from scripts too.
    pub calls: u64,
    /// Microseconds that all calls took together.
    pub micros: f64,
}

/// The number in a line `name:number`.
#[must_use]
pub fn number(info: &str, name: &str) -> Option<f64> {
    let mut lines = info.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = lines.find(|(key, _)| *key == name)?;
    value.trim().parse().ok()
}

/// What the section `commandstats` says of a command; nothing if it was never called.
#[must_use]
pub fn command(info: &str, name: &str) -> Option<CommandStats> {
    let mut lines = info.lines().filter_map(|line| line.split_once(':'));
    let (_, fields) = lines.find(|(key, _)| key.strip_prefix("cmdstat_") == Some(name))?;
    let field = |wanted: &str| {
        let mut pairs = fields.split(',').filter_map(|field| field.split_once('='));
        Some(pairs.find(|(key, _)| *key == wanted)?.1.trim())
    };
    Some(CommandStats {
        calls: field("calls")?.parse().ok()?,
        micros: field("usec")?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const INFO: &str = "# CPU\r\nused_cpu_sys:0.125\r\nused_cpu_sys_children:7\r\n# Commandstats\r\n\
        cmdstat_set:calls=2,usec=9,usec_per_call=4.50,rejected_calls=0,failed_calls=0\r\n";

    #[test]
    fn a_number_is_found_by_its_whole_name() {
        assert_eq!(number(INFO, "used_cpu_sys"), Some(0.125));
        assert_eq!(number(INFO, "used_cpu"), None);
        assert_eq!(number(INFO, "# CPU"), None);
    }

    #[test]
    fn a_command_that_was_never_called_is_not_there() {
        let set = CommandStats {
            calls: 2,
            micros: 9.0,
        };
        assert_eq!(command(INFO, "set"), Some(set));
        assert_eq!(command(INFO, "se"), None);
        assert_eq!(command("cmdstat_set:calls=many", "set"), None);
    }
}
