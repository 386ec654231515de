//! Regenerates the field tables in docs/policy.md: `cargo run -p tollgate-policy --example reference`.

fn main() -> std::io::Result<()> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/policy.md");
    let document = std::fs::read_to_string(path)?;
    std::fs::write(path, tollgate_policy::reference::update_tables(&document))
}
