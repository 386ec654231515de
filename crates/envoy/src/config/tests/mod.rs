//! The format's rules, each with its own golden test, and a naive model beside random files and requests.

mod explain;
mod limits;
mod loading;
mod matching;
mod metrics;
mod random;
mod reference_model;
mod statuses;
mod test_server;
