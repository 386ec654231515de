//! A strict parser of both metric formats: what it accepts, every scraper accepts.

use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExpositionFormat {
    Prometheus,
    OpenMetrics,
}

/// One metric family with its samples.
#[derive(Debug)]
struct Family {
    /// Its type in the format.
    name: String,
    kind: String,
    has_help: bool,
    has_samples: bool,
}

/// All samples: name and labels, and the value as text.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Exposition {
    pub(super) samples: BTreeMap<String, String>,
}

impl Exposition {
    /// The value of a series as text: `name{label="value"}`.
    pub(super) fn value(&self, series: &str) -> &str {
        let value = self.samples.get(series);
        value.unwrap_or_else(|| panic!("{series} is not among {:#?}", self.samples.keys()))
    }
}

pub(super) fn read(text: &str, format: ExpositionFormat) -> Result<Exposition, String> {
    let body = match format {
        ExpositionFormat::Prometheus => text,
        ExpositionFormat::OpenMetrics => text.strip_suffix("# EOF\n").ok_or("it has no end")?,
    };
    if !body.is_empty() && !body.ends_with('\n') {
        return Err("its last line has no end".to_owned());
    }
    let mut reader = Reader {
        format,
        page: Exposition::default(),
        family: None,
        seen: BTreeSet::new(),
    };
    for line in body.lines() {
        let read = match line.strip_prefix("# ") {
            Some(about) => reader.description(about),
            None => reader.sample(line),
        };
        read.map_err(|why| format!("{why}: {line}"))?;
    }
    check_histograms(body)?;
    Ok(reader.page)
}

struct Reader {
    format: ExpositionFormat,
    page: Exposition,
    family: Option<Family>,
    seen: BTreeSet<String>,
}

impl Reader {
    /// Parses `HELP`, `TYPE` or `UNIT`, each once and before any sample of the family.
    fn description(&mut self, about: &str) -> Result<(), String> {
        let mut words = about.splitn(3, ' ');
        let (word, name) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
        let value = words.next().ok_or("it says nothing")?;
        if self
            .family
            .as_ref()
            .is_none_or(|family| family.name != name)
        {
            if !self.seen.insert(name.to_owned()) {
                return Err("the samples of a family are not contiguous".to_owned());
            }
            self.family = Some(Family {
                name: name.to_owned(),
                kind: String::new(),
                has_help: false,
                has_samples: false,
            });
        }
        let family = self.family.as_mut().filter(|family| !family.has_samples);
        let family = family.ok_or("it comes after samples")?;
        let is_open = self.format == ExpositionFormat::OpenMetrics;
        match word {
            "TYPE" if family.kind.is_empty() => family.kind = value.to_owned(),
            "HELP" if !family.has_help => family.has_help = true,
            "UNIT" if is_open && name.ends_with(&format!("_{value}")) => {}
            _ => return Err("the line is duplicate or unknown".to_owned()),
        }
        check_kind(family, self.format)
    }

    fn sample(&mut self, line: &str) -> Result<(), String> {
        let family = self.family.as_mut();
        let family = family.filter(|family| family.has_help && !family.kind.is_empty());
        let family = family.ok_or("the family has no TYPE")?;
        family.has_samples = true;
        let (name, labels, value) = sample(line).ok_or("it is no sample")?;
        check_name(family, &name, &labels, self.format)?;
        if value.starts_with('-') {
            return Err("nothing here is less than nothing".to_owned());
        }
        let label = |(name, value): &(String, String)| format!("{name}={value:?}");
        let labels: Vec<String> = labels.iter().map(label).collect();
        let series = match labels.is_empty() {
            true => name,
            false => format!("{name}{{{}}}", labels.join(",")),
        };
        match self.page.samples.insert(series, value.to_owned()) {
            None => Ok(()),
            Some(_) => Err("the series is duplicate".to_owned()),
        }
    }
}

fn check_kind(family: &Family, format: ExpositionFormat) -> Result<(), String> {
    let is_right = match (family.kind.as_str(), format) {
        ("" | "gauge" | "histogram", _) => true,
        ("counter", ExpositionFormat::Prometheus) => family.name.ends_with("_total"),
        ("counter", ExpositionFormat::OpenMetrics) => !family.name.ends_with("_total"),
        ("info", ExpositionFormat::OpenMetrics) => true,
        _ => false,
    };
    is_right
        .then_some(())
        .ok_or_else(|| format!("a {} cannot be called so", family.kind))
}

fn check_name(
    family: &Family,
    name: &str,
    labels: &[(String, String)],
    format: ExpositionFormat,
) -> Result<(), String> {
    let rest = name.strip_prefix(family.name.as_str());
    let has_end = labels.iter().any(|(label, _)| label == "le");
    let is_right = match (family.kind.as_str(), rest, format) {
        ("counter", Some("_total"), ExpositionFormat::OpenMetrics) => !has_end,
        ("info", Some("_info"), ExpositionFormat::OpenMetrics) => !has_end,
        ("counter", Some(""), ExpositionFormat::Prometheus) => !has_end,
        ("gauge", Some(""), _) => !has_end,
        ("histogram", Some("_bucket"), _) => has_end,
        ("histogram", Some("_sum" | "_count"), _) => !has_end,
        _ => false,
    };
    let is_word = |text: &str| {
        !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    let names: BTreeSet<&String> = labels.iter().map(|(label, _)| label).collect();
    let are_words = is_word(name) && names.iter().all(|label| is_word(label));
    match is_right && are_words && names.len() == labels.len() {
        true => Ok(()),
        false => Err(format!("it is no sample of {}", family.name)),
    }
}

/// `name{label="value",…} number`
type Sample<'a> = (String, Vec<(String, String)>, &'a str);

fn sample(line: &str) -> Option<Sample<'_>> {
    let end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = Vec::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        loop {
            let (label, after) = rest.split_once("=\"")?;
            let (value, after) = quoted(after)?;
            labels.push((label.to_owned(), value));
            rest = match after.strip_prefix(',') {
                Some(more) => more,
                None => break rest = after.strip_prefix('}')?,
            };
        }
    }
    let number = rest.strip_prefix(' ')?;
    // Neither a timestamp nor anything else follows.
    let is_number = !number.is_empty() && number.chars().all(|c| "0123456789.e+-".contains(c));
    number.parse::<f64>().ok().filter(|_| is_number)?;
    Some((name.to_owned(), labels, number))
}

fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((index, c)) = chars.next() {
        match c {
            '"' => return Some((value, &text[index + 1..])),
            '\\' => value.push(match chars.next()?.1 {
                '\\' => '\\',
                '"' => '"',
                'n' => '\n',
                _ => return None,
            }),
            c => value.push(c),
        }
    }
    None
}

/// Buckets are cumulative, the last is `+Inf`, and it equals the count.
fn check_histograms(body: &str) -> Result<(), String> {
    let mut buckets: BTreeMap<String, Vec<(f64, u64)>> = BTreeMap::new();
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for (name, labels, value) in body.lines().filter_map(sample) {
        let end = labels.iter().find(|(label, _)| label == "le");
        let others: Vec<_> = labels.iter().filter(|(label, _)| label != "le").collect();
        if let (Some(name), Some((_, end))) = (name.strip_suffix("_bucket"), end) {
            let bucket = end.parse().ok().zip(value.parse().ok());
            let bucket = bucket.ok_or_else(|| format!("{name}: {end} is no bucket"))?;
            let series = format!("{name}{others:?}");
            buckets.entry(series).or_default().push(bucket);
        } else if let (Some(name), Ok(count)) = (name.strip_suffix("_count"), value.parse()) {
            counts.insert(format!("{name}{others:?}"), count);
        }
    }
    for (name, buckets) in &buckets {
        let grows = buckets.is_sorted_by(|one, next| one.0 < next.0 && one.1 <= next.1);
        let last = buckets.last().filter(|(end, _)| end.is_infinite());
        if !grows || last.map(|(_, count)| count) != counts.get(name) || last.is_none() {
            return Err(format!("{name}: {buckets:?} are no buckets"));
        }
    }
    Ok(())
}

#[test]
fn valid_expositions_are_parsed() {
    let text = "# HELP a_total What\n# TYPE a_total counter\na_total{b=\"c\\\"\\\\\\n\"} 7\n";
    let page = read(text, ExpositionFormat::Prometheus).unwrap();
    assert_eq!(page.value("a_total{b=\"c\\\"\\\\\\n\"}"), "7");
    let open = "# TYPE a counter\n# HELP a What\na_total 1e3\n# EOF\n";
    assert_eq!(
        read(open, ExpositionFormat::OpenMetrics)
            .unwrap()
            .value("a_total"),
        "1e3"
    );
}

/// The negative control: each of these has broken a scraper somewhere.
#[test]
fn invalid_expositions_are_refused() {
    let head = "# HELP a What\n# TYPE a gauge\n";
    let histogram = "# HELP h What\n# TYPE h histogram\n";
    let wrong = [
        "a 1\n".to_owned(),
        format!("{head}a 1"),
        format!("{head}a\n"),
        format!("{head}a one\n"),
        format!("{head}a 1 1700000000\n"),
        format!("{head}a -1\n"),
        format!("{head}a NaN\n"),
        format!("{head}b 1\n"),
        format!("{head}a_total 1\n"),
        format!("{head}a 1\na 2\n"),
        format!("{head}a 1\n{head}"),
        format!("{head}a 1\n# HELP b What\n# TYPE b gauge\nb 1\n{head}"),
        format!("{head}# TYPE a gauge\na 1\n"),
        format!("{head}a{{b=\"c}} 1\n"),
        format!("{head}a{{b=\"\\x\"}} 1\n"),
        format!("{head}a{{b=\"c\",b=\"d\"}} 1\n"),
        format!("{head}a{{b-c=\"d\"}} 1\n"),
        "# TYPE a gauge\na 1\n".to_owned(),
        "# HELP a What\n# TYPE a counter\na 1\n".to_owned(),
        "# HELP a What\n# TYPE a gauge\n# EOF\n".to_owned(),
        format!("{histogram}h_bucket{{le=\"1.0\"}} 1\nh_count 1\nh_sum 1\n"),
        format!("{histogram}h_bucket{{le=\"1.0\"}} 2\nh_bucket{{le=\"+Inf\"}} 1\nh_count 1\n"),
        format!("{histogram}h_bucket{{le=\"1.0\"}} 1\nh_bucket{{le=\"+Inf\"}} 2\nh_count 3\n"),
        format!(
            "{histogram}h_bucket{{le=\"2.0\"}} 1\nh_bucket{{le=\"1.0\"}} 1\nh_bucket{{le=\"+Inf\"}} 1\nh_count 1\n"
        ),
    ];
    for text in &wrong {
        assert!(read(text, ExpositionFormat::Prometheus).is_err(), "{text}");
    }
    for text in [
        "# TYPE a gauge\n# HELP a What\na 1\n",
        "# TYPE a gauge\n# HELP a What\na 1\n# EOF",
        "# TYPE a gauge\n# EOF\n# HELP a What\na 1\n",
        "# TYPE a_total counter\n# HELP a_total What\na_total 1\n# EOF\n",
        "# TYPE a counter\n# HELP a What\na 1\n# EOF\n",
        "# TYPE a gauge\n# UNIT a seconds\n# HELP a What\na 1\n# EOF\n",
    ] {
        assert!(read(text, ExpositionFormat::OpenMetrics).is_err(), "{text}");
    }
}
