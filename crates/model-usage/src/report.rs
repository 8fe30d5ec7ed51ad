//! The use of models as people ask for it.

use std::collections::BTreeMap;

use crate::account::{Account, OTHER};
use crate::changes::{Owner, Row};
use crate::tokens::Usage;

/// Most groups of a report. All further ones are one.
const MOST_GROUPS: usize = 4_096;

/// The property by which use is grouped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    Model,
    Principal,
    Day,
}

/// The use of models, in all and by group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    pub total: Usage,
    /// Groups in the order of their names.
    pub groups: BTreeMap<String, Usage>,
}

impl Report {
    /// Returns the use of a run by model.
    pub(crate) fn of(account: &Account) -> Self {
        let groups = account.models().map(|(model, usage)| (model.to_owned(), usage));
        Self { total: account.total(), groups: groups.collect() }
    }

    /// Adds a row of a day.
    pub(crate) fn add(&mut self, row: &Row, usage: Usage, by: By) {
        let Owner::Day(day, principal) = &row.owner else { return };
        // Requests are counted when they are sent, in a row without a model, and again with the model of their response.
        let counts_requests = row.model.is_empty();
        let once = if counts_requests { usage } else { Usage { requests: 0, ..usage } };
        self.total.add(&once);
        let (name, counted) = match by {
            By::Model if counts_requests => return,
            By::Model => (row.model.clone(), usage),
            By::Principal => (principal.clone(), once),
            By::Day => (day.to_string(), once),
        };
        let has_room = self.groups.len() < MOST_GROUPS || self.groups.contains_key(&name);
        self.groups.entry(if has_room { name } else { OTHER.to_owned() }).or_default().add(&counted);
    }
}
