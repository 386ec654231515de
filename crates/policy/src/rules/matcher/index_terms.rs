//! The index terms of a condition: what an entry can be found by.
//!
//! Must not know: which condition an entry is indexed by, requests.

use std::net::IpAddr;

use super::super::RuleErrorKind;
use super::super::network_index;
use super::super::route_tree::RoutePattern;
use super::condition::{compile_glob, normalize_value};
use super::request_view::Subject;
use crate::model::{IpNet, Test};

/// A key of the index.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum IndexTerm {
    Route(RoutePattern),
    Exact(Subject, Box<[u8]>),
    Within(IpNet),
    Prefix(Subject, Box<[u8]>),
    Suffix(Subject, Box<[u8]>),
    Present(Subject),
}

/// Terms of which at least one is found for every request that passes the test. `None` if there are none.
pub(super) fn index_terms(
    subject: Subject,
    test: &Test,
    fold: bool,
) -> Result<Option<Vec<IndexTerm>>, RuleErrorKind> {
    Ok(Some(match test {
        Test::OneOf(values) if subject == Subject::Ip => values
            .iter()
            .filter_map(|value| value.parse::<IpAddr>().ok())
            .map(|address| IndexTerm::Within(network_index::canonical(IpNet::from(address))))
            .collect(),
        Test::OneOf(values) => values
            .iter()
            .map(|value| IndexTerm::Exact(subject, normalize_value(subject, value, fold)))
            .collect(),
        Test::Within(networks) => networks
            .iter()
            .map(|network| IndexTerm::Within(network_index::canonical(*network)))
            .collect(),
        Test::Route(templates) => {
            let routes = templates
                .iter()
                .filter_map(|template| RoutePattern::new(&template.0, fold));
            routes.map(IndexTerm::Route).collect()
        }
        Test::Glob(_) if subject == Subject::Ip => return Ok(None),
        Test::Glob(globs) => {
            let mut terms = Vec::with_capacity(globs.len());
            for glob in globs {
                let pattern = compile_glob(subject, &glob.0, fold)?;
                terms.push(if pattern.prefix().len() >= pattern.suffix().len() {
                    IndexTerm::Prefix(subject, pattern.prefix().into())
                } else {
                    IndexTerm::Suffix(subject, pattern.suffix().into())
                });
            }
            terms
        }
        Test::Present => vec![IndexTerm::Present(subject)],
        Test::Absent | Test::Not(_) => return Ok(None),
    }))
}
