//! `tollgate schema`: what a policy file may say, for editors.
//!
//! Must not know: what is in it.

use crate::json;
use crate::output::Failure;

pub(crate) fn print() -> Result<(), Failure> {
    json::answer(&tollgate_policy::schema::schema())
}
