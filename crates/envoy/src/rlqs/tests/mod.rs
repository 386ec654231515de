//! Shares under everything that can go wrong between a server and its clients, and the table of clients and buckets.

mod quota_table;
mod share_properties;
mod simulator;
