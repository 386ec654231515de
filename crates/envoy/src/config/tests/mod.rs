//! Tests of each rule of the format, and a reference model for random files and requests.

mod explain;
mod limits;
mod loading;
mod matching;
mod metrics;
mod random;
mod reference_model;
mod statuses;
mod test_server;
