//! Formats explanations for people.
//!
//! Must not know: how they were made.

use std::fmt;

use super::{
    Explanation, LimitEvaluation, LimitExplanation, MechanismExplanation, OverloadExplanation,
    RequestExplanation,
};
use crate::humanize::format_number;

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(mode) = &self.mode {
            writeln!(f, "{mode}")?;
        }
        for deny in &self.deny {
            writeln!(f, "refused: {deny}")?;
        }
        for exempt in &self.exempt {
            writeln!(f, "exempt: {exempt}")?;
        }
        if let Some(overload) = &self.overload {
            write!(f, "{overload}")?;
        }
        if self.limits.is_empty() {
            return writeln!(f, "no limits: every request is admitted");
        }
        let has_lists = self.mode.is_some()
            || !self.deny.is_empty()
            || !self.exempt.is_empty()
            || self.overload.is_some();
        for (index, limit) in self.limits.iter().enumerate() {
            if index > 0 || has_lists {
                writeln!(f)?;
            }
            write!(f, "{limit}")?;
        }
        if let Some(preflights) = &self.preflights {
            let (name, mode, per) = (&preflights.name, &preflights.mode, &preflights.per);
            writeln!(f)?;
            writeln!(f, "CORS preflights: {name} ({mode}), counted for {per}")?;
            for quota in &preflights.quotas {
                writeln!(f, "  {}", quota.words)?;
            }
        }
        self.show_slots(f)
    }
}

impl Explanation {
    fn show_slots(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.slots.len() < 2 {
            return Ok(());
        }
        writeln!(f)?;
        writeln!(
            f,
            "a request under all of them takes {} round trips, one for each slot:",
            format_number(self.slots.len() as u64)
        )?;
        for slot in &self.slots {
            writeln!(f, "  {}: {}", slot.by, slot.limits.join(", "))?;
        }
        writeln!(f, "  `colocate` joins slots")
    }
}

impl fmt::Display for OverloadExplanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "overload, in the gateway and the tower layer:")?;
        for mechanism in &self.mechanisms {
            let MechanismExplanation { name, mode, words } = mechanism;
            writeln!(f, "  {name} ({mode}): {words}")?;
        }
        for class in &self.classes {
            writeln!(f, "  class {}: {}", class.name, class.requests)?;
        }
        Ok(())
    }
}

impl fmt::Display for LimitExplanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} ({})", self.name, self.mode)?;
        writeln!(f, "  {}; counted for {}", self.applies_to, self.per)?;
        let is_alone = self.quotas.len() == 1;
        for quota in &self.quotas {
            if is_alone {
                writeln!(f, "  {}", quota.words)?;
            } else {
                writeln!(f, "  {}: {}", quota.who, quota.words)?;
            }
        }
        for note in &self.notes {
            writeln!(f, "  {note}")?;
        }
        for note in &self.fleet {
            writeln!(f, "  {note}")?;
        }
        let memory = format_number(self.memory_bytes_per_key);
        write!(f, "  about {memory} bytes a key in memory")?;
        if !self.fleet.is_empty() {
            write!(f, ", {} in Redis", format_number(self.redis_bytes_per_key))?;
        }
        writeln!(f)
    }
}

impl fmt::Display for RequestExplanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(route) = &self.route {
            writeln!(f, "route: {route}")?;
        }
        if !self.readings.is_empty() {
            let readings = self.readings.join(", ");
            writeln!(f, "servers may read the path as: {readings}")?;
        }
        if let Some(class) = &self.class {
            writeln!(f, "priority class: {class}")?;
        }
        writeln!(f, "{}", self.verdict)?;
        for limit in &self.limits {
            writeln!(f)?;
            write!(f, "{limit}")?;
        }
        Ok(())
    }
}

impl fmt::Display for LimitEvaluation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let does = if self.applies {
            "applies"
        } else {
            "does not apply"
        };
        write!(f, "{} {does}", self.name)?;
        match &self.reason {
            Some(reason) => writeln!(f, ": {reason}")?,
            None => writeln!(f)?,
        }
        for condition in &self.conditions {
            let mark = if condition.held { "yes" } else { "no " };
            writeln!(f, "  {mark} {} ({})", condition.condition, condition.seen)?;
        }
        if !self.applies {
            return Ok(());
        }
        if self.key.is_empty() {
            writeln!(f, "  key: everyone together")?;
        }
        for part in &self.key {
            writeln!(f, "  key: {} = {}", part.part, part.value)?;
        }
        if let Some(quota) = &self.quota {
            let who = match quota.who.as_str() {
                "everyone" => "quota".to_owned(),
                who => format!("quota of {who}"),
            };
            writeln!(f, "  {who}: {}", quota.words)?;
        }
        writeln!(f, "  costs {}; {}", format_number(self.cost), self.mode)
    }
}
