//! What a policy means, as far as it can be wrong.

use crate::model::Policy;
use crate::read::{Places, Report};

pub(crate) fn policy(_policy: &Policy, _places: &Places, _report: &mut Report) {}
