//! `tollgate schema`: what a policy file may say, for editors.
//!
//! Must not know: what is in it.

use crate::json;
use crate::output::CommandError;

pub(crate) fn print() -> Result<(), CommandError> {
    json::print_json(&tollgate_policy::schema::schema())
}
