//! Validation of files: for each check a file that fails only that check, and its message.

mod file_sets;
mod limits;
mod structure;

use crate::config::{LoadOptions, load_with};

/// The problems of a file, each as `line:column: message`.
fn problems(text: &str) -> Vec<String> {
    all_problems(&[("a.yaml", text)], LoadOptions::default())
}

fn all_problems(files: &[(&str, &str)], options: LoadOptions) -> Vec<String> {
    let refused = load_with(files, options).expect_err("the files are invalid");
    let each = refused.0.iter().flat_map(|file| {
        file.list.iter().map(|problem| {
            let location = problem.location;
            format!("{}:{}: {}", location.line, location.column, problem.message)
        })
    });
    each.collect()
}

fn limit(fields: &str) -> String {
    format!("domain: d\ndescriptors:\n  - key: k\n    rate_limit: {{ {fields} }}\n")
}
