//! Rows that are not yet in the database.

use std::collections::{BTreeMap, BTreeSet};

use crate::day::Day;
use crate::tokens::Usage;

/// The account that a row belongs to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Owner {
    Run(String),
    /// A day of a principal.
    Day(Day, String),
}

impl Owner {
    /// Returns true if it is a day of this principal, or of any if there is none.
    pub(crate) fn is_of(&self, principal: Option<&str>) -> bool {
        matches!(self, Self::Day(_, owner) if principal.is_none_or(|principal| owner == principal))
    }
}

/// Names a row of the database.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Row {
    pub(crate) owner: Owner,
    /// Name of the model; empty for the row that counts requests when they are sent.
    pub(crate) model: String,
}

/// Rows that have changed since they were last written.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    pub(crate) rows: BTreeMap<Row, Usage>,
    /// Runs whose rows are to be deleted, before the others are written.
    pub(crate) forgotten: BTreeSet<String>,
    /// First day that is kept, if older ones are to be deleted.
    pub(crate) oldest: Option<Day>,
}

impl Changes {
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.forgotten.is_empty() && self.oldest.is_none()
    }

    pub(crate) fn set(&mut self, owner: &Owner, model: &str, usage: Usage) {
        self.rows.insert(Row { owner: owner.clone(), model: model.to_owned() }, usage);
    }

    pub(crate) fn forget(&mut self, run: &str) {
        self.rows.retain(|row, _| !matches!(&row.owner, Owner::Run(owner) if owner == run));
        self.forgotten.insert(run.to_owned());
    }

    /// Takes back earlier changes that could not be written. Later ones win.
    pub(crate) fn put_back(&mut self, earlier: Self) {
        for (row, usage) in earlier.rows {
            let is_forgotten = matches!(&row.owner, Owner::Run(run) if self.forgotten.contains(run));
            if !is_forgotten {
                self.rows.entry(row).or_insert(usage);
            }
        }
        self.forgotten.extend(earlier.forgotten);
        self.oldest = self.oldest.max(earlier.oldest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(requests: u64) -> Usage {
        Usage { requests, ..Usage::default() }
    }

    #[test]
    fn changes_that_come_back_do_not_replace_later_ones_or_rows_of_deleted_runs() {
        let [one, two, three] = ["one", "two", "three"].map(|run| Owner::Run(run.to_owned()));
        let mut earlier = Changes::default();
        for owner in [&one, &two, &three] {
            earlier.set(owner, "m", requests(1));
        }
        let mut later = Changes::default();
        later.set(&one, "m", requests(2));
        later.forget("two");
        later.put_back(earlier);
        let rows: Vec<_> = later.rows.iter().map(|(row, usage)| (&row.owner, usage.requests)).collect();
        assert_eq!(rows, [(&one, 2), (&three, 1)]);
        assert!(later.forgotten.contains("two"));
    }
}
