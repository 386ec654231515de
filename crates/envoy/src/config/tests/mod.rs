//! The format's rules, each with its own golden test, and a naive model beside random files and requests.

mod executor;
mod explained;
mod limits;
mod loading;
mod matching;
mod metrics;
mod naive;
mod random;
mod statuses;
