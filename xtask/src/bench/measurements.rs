//! Reads what the programs of `bench` have measured: lines that `bench/peers/src/measurements.rs` writes.
//!
//! Must not know: pages, plots, what is promised.

/// One number with its spread.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Measurement {
    pub(super) workload: String,
    /// Who was measured.
    pub(super) name: String,
    pub(super) role: Role,
    /// What was measured; of a study of growth, the number on the horizontal axis.
    pub(super) metric: String,
    pub(super) unit: String,
    pub(super) median: f64,
    pub(super) least: f64,
    pub(super) most: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Ours,
    Peer,
    Floor,
}

/// All of a run.
#[derive(Debug, Default)]
pub(super) struct Measurements(pub(super) Vec<Measurement>);

impl Measurements {
    /// Adds the lines of one program.
    pub(super) fn read(&mut self, text: &str) -> Result<(), String> {
        for (index, line) in text.lines().enumerate() {
            let measurement = parse(line);
            let place = || format!("line {} of the measurements: `{line}`", index + 1);
            self.0.push(measurement.ok_or_else(place)?);
        }
        Ok(())
    }

    /// One number of somebody.
    pub(super) fn get(&self, workload: &str, name: &str, metric: &str) -> Option<&Measurement> {
        self.0
            .iter()
            .find(|one| one.workload == workload && one.name == name && one.metric == metric)
    }

    /// The processor time of all who took part in a workload.
    pub(super) fn processor_times(&self, workload: &str) -> impl Iterator<Item = &Measurement> {
        self.0
            .iter()
            .filter(move |one| one.workload == workload && one.metric == "cpu")
    }
}

fn parse(line: &str) -> Option<Measurement> {
    let fields: Vec<&str> = line.split('\t').collect();
    let [workload, name, role, metric, unit, median, least, most] = fields.as_slice() else {
        return None;
    };
    let role = match *role {
        "ours" => Role::Ours,
        "peer" => Role::Peer,
        "floor" => Role::Floor,
        _ => return None,
    };
    let number = |text: &str| text.parse::<f64>().ok().filter(|number| number.is_finite());
    Some(Measurement {
        workload: (*workload).to_owned(),
        name: (*name).to_owned(),
        role,
        metric: (*metric).to_owned(),
        unit: (*unit).to_owned(),
        median: number(median)?,
        least: number(least)?,
        most: number(most)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_they_were_written() {
        let mut all = Measurements::default();
        let text = "http\ttollgate\tours\tcpu\ts per million\t9.5\t9.1\t10.0\n\
                    http\tbare hyper\tfloor\tcpu\ts per million\t10.1\t10.0\t10.2\n";
        all.read(text).unwrap();
        assert!(
            all.get("http", "tollgate", "cpu")
                .is_some_and(|one| one.least < one.median)
        );
        assert!(all.get("http", "tollgate", "p99").is_none());
        assert_eq!(all.processor_times("http").count(), 2);
    }

    #[test]
    fn a_line_that_cannot_be_read_is_named() {
        for line in [
            "http",
            "a\tb\tfriend\tc\td\t1\t1\t1",
            "a\tb\tours\tc\td\tNaN\t1\t1",
        ] {
            let error = Measurements::default().read(line).unwrap_err();
            assert!(error.contains("line 1"), "{error}");
        }
    }
}
