//! `tollgate schema`: prints the JSON Schema of policy files, for editors.
//!
//! Must not know: what the schema contains.

use crate::json;
use crate::output::CommandError;

pub(crate) fn print() -> Result<(), CommandError> {
    json::print_json(&tollgate_policy::schema::schema())
}
