//! Test vectors: quotas, traces and expected answers as data files.
