//! Prints the JSON Schema of policy files, as it is published in `docs/policy.schema.json`.

use std::io::Write as _;

fn main() -> std::io::Result<()> {
    std::io::stdout().write_all(tollgate_policy::schema::text().as_bytes())
}
