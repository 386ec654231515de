//! Shares on an unreliable network, and the table of clients and buckets.

mod quota_table;
mod share_properties;
mod simulator;
