//! The command `protos`: makes the descriptor set that gRPC reflection serves out of the `.proto` files of `crates/server`.
//!
//! Knows which files have a service of ours; what they import comes with them. Knows nothing of the server.

use std::path::Path;

use crate::workspace::Workspace;
use crate::{peers, process};

const SOURCES: &str = "crates/server/proto";
const DESCRIPTORS: &str = "crates/server/src/grpc/schema/descriptors.binpb";

/// The files that define services, in the order in which reflection lists them.
const SERVICES: [&str; 5] = [
    "envoy/service/ratelimit/v3/rls.proto",
    "envoy/service/rate_limit_quota/v3/rlqs.proto",
    "grpc/health/v1/health.proto",
    "grpc/reflection/v1/reflection.proto",
    "grpc/reflection/v1alpha/reflection.proto",
];

pub(crate) fn run(args: &[String]) -> Result<(), String> {
    process::no_arguments("protos", args)?;
    let workspace = Workspace::load()?;
    let mut protoc = peers::protoc(&workspace.target)?;
    protoc
        .current_dir(&workspace.root)
        .args(["-I", SOURCES, "--include_imports"])
        .arg(format!("--descriptor_set_out={DESCRIPTORS}"))
        .args(SERVICES.map(|file| Path::new(SOURCES).join(file)));
    process::run(&mut protoc)
}
