//! An example configuration with this test's ports in it, so that what people copy is what was tested.
//!
//! Must not know: what the configuration is about.

use crate::process::failed;

/// Replaces ports, each wherever it stands as `port_value`. A port of 0 is one that Envoy chooses.
///
/// # Panics
/// The example does not have one of the ports, or has one that is not replaced: then a test would leave its own machine's
/// loopback to chance.
#[must_use]
pub fn with_ports(example: &str, ports: &[(u16, u16)]) -> String {
    let mut is_used = vec![false; ports.len()];
    let mut replaced = String::with_capacity(example.len());
    let mut rest = example;
    while let Some((before, after)) = rest.split_once("port_value: ") {
        let digits = after.chars().take_while(char::is_ascii_digit).count();
        let (port, behind) = after.split_at(digits);
        let known = ports.iter().zip(&mut is_used);
        let mut known = known.filter(|((from, _), _)| *port == from.to_string());
        let Some(((_, to), is_used)) = known.next() else {
            failed(&format!("nothing is said about the port `{port}`"))
        };
        *is_used = true;
        replaced.push_str(before);
        replaced.push_str(&format!("port_value: {to}"));
        rest = behind;
    }
    replaced.push_str(rest);
    if let Some(((from, _), _)) = ports.iter().zip(&is_used).find(|(_, is_used)| !**is_used) {
        failed(&format!("the example has no port {from}"));
    }
    replaced
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str =
        "a: { port_value: 8081 }\nb: { port_value: 80 }\nc: { port_value: 8081 }\n";

    #[test]
    fn every_port_is_replaced_wherever_it_stands() {
        assert_eq!(
            with_ports(EXAMPLE, &[(8081, 5), (80, 0)]),
            "a: { port_value: 5 }\nb: { port_value: 0 }\nc: { port_value: 5 }\n"
        );
    }

    #[test]
    #[should_panic(expected = "nothing is said about the port `80`")]
    fn a_port_that_is_forgotten_is_noticed() {
        drop(with_ports(EXAMPLE, &[(8081, 5)]));
    }

    #[test]
    #[should_panic(expected = "the example has no port 90")]
    fn a_port_that_is_not_there_is_noticed() {
        drop(with_ports(EXAMPLE, &[(8081, 5), (80, 0), (90, 0)]));
    }
}
