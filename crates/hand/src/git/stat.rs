//! `--stat` and `--shortstat`, with git's arithmetic for 80 columns.

use super::delta::{Change, Kind};
use super::names::shown;
use super::output::Output;

const COLUMNS: usize = 80;

/// What is kept of each change until the widths are known.
struct Row {
    name: String,
    amount: Amount,
}

enum Amount {
    Lines { added: usize, deleted: usize },
    Bytes { old: u64, new: u64 },
    Unmerged,
}

/// Collects changes, then prints them.
#[derive(Default)]
pub(super) struct Stat {
    rows: Vec<Row>,
}

impl Stat {
    pub(super) fn add(&mut self, change: &Change<'_>) {
        let amount = if change.kind == Kind::Unmerged {
            Amount::Unmerged
        } else if change.is_binary() && change.old.id == change.new.id && !change.new.in_work_tree {
            Amount::Bytes { old: 0, new: 0 }
        } else if change.is_binary() {
            Amount::Bytes {
                old: if change.kind == Kind::Added { 0 } else { change.old.size },
                new: if change.kind == Kind::Deleted { 0 } else { change.new.size },
            }
        } else {
            let (added, deleted) = change.lines();
            Amount::Lines { added, deleted }
        };
        self.rows.push(Row { name: shown(change), amount });
    }

    /// ` 2 files changed, 3 insertions(+)`; nothing without changes.
    pub(super) fn summary(&self, output: &mut Output) {
        let files = self.rows.iter().filter(|row| !matches!(row.amount, Amount::Unmerged)).count();
        if self.rows.is_empty() {
            return;
        }
        let (mut added, mut deleted) = (0, 0);
        for row in &self.rows {
            if let Amount::Lines { added: more, deleted: less } = row.amount {
                added += more;
                deleted += less;
            }
        }
        let plural = |count| if count == 1 { "" } else { "s" };
        output.push_str(&format!(" {files} file{} changed", plural(files)));
        if files > 0 && (added > 0 || deleted == 0) {
            output.push_str(&format!(", {added} insertion{}(+)", plural(added)));
        }
        if files > 0 && (deleted > 0 || added == 0) {
            output.push_str(&format!(", {deleted} deletion{}(-)", plural(deleted)));
        }
        output.push_str("\n");
    }

    /// One line a file with its graph, then the summary.
    pub(super) fn graph(&self, output: &mut Output) {
        let widths = Widths::of(&self.rows);
        for row in &self.rows {
            output.push_str(&widths.line(row));
        }
        self.summary(output);
    }
}

struct Widths {
    name: usize,
    number: usize,
    graph: usize,
    most: usize,
}

impl Widths {
    fn of(rows: &[Row]) -> Self {
        let longest = rows.iter().map(|row| width(&row.name)).max().unwrap_or(0);
        let (mut most, mut bytes_width, mut number) = (0, 0, 0);
        for row in rows {
            match row.amount {
                Amount::Lines { added, deleted } => most = most.max(added + deleted),
                Amount::Bytes { old, new } => {
                    bytes_width = bytes_width.max(14 + digits(old) + digits(new));
                    number = number.max("Bin".len());
                }
                Amount::Unmerged => bytes_width = bytes_width.max("Unmerged".len()),
            }
        }
        let number = number.max(digits(most as u64));
        let columns = COLUMNS.max(16 + 6 + number);
        let mut graph = if most + 4 > bytes_width { most } else { bytes_width - 4 };
        let mut name = longest;
        if name + number + 6 + graph > columns {
            graph = graph.min((columns * 3 / 8).saturating_sub(number + 6).max(6));
            let room = columns - number - 6 - graph;
            if name > room {
                name = room;
            } else {
                graph = columns - number - 6 - name;
            }
        }
        Self { name, number, graph, most }
    }

    fn line(&self, row: &Row) -> String {
        let name = self.fit(&row.name);
        let number = self.number;
        match row.amount {
            Amount::Unmerged => format!(" {name} | {:>number$}\n", "Unmerged"),
            Amount::Bytes { old: 0, new: 0 } => format!(" {name} | {:>number$}\n", "Bin"),
            Amount::Bytes { old, new } => format!(" {name} | {:>number$} {old} -> {new} bytes\n", "Bin"),
            Amount::Lines { added, deleted } => {
                let total = added + deleted;
                let space = if total > 0 { " " } else { "" };
                let (plus, minus) = self.scale(added, deleted);
                format!(" {name} | {total:>number$}{space}{}{}\n", "+".repeat(plus), "-".repeat(minus))
            }
        }
    }

    /// Exactly as wide as the column; a name that is too long loses its front, at a slash if possible.
    fn fit(&self, name: &str) -> String {
        let (mut rest, mut prefix, mut room) = (name, "", self.name);
        if width(name) > self.name {
            prefix = "...";
            room = self.name.saturating_sub(prefix.len());
            while width(rest) > room {
                let mut characters = rest.chars();
                characters.next();
                rest = characters.as_str();
            }
            if let Some(slash) = rest.find('/') {
                rest = &rest[slash..];
            }
        }
        let padding = room.saturating_sub(width(rest));
        format!("{prefix}{rest}{:padding$}", "")
    }

    fn scale(&self, added: usize, deleted: usize) -> (usize, usize) {
        if self.graph > self.most {
            return (added, deleted);
        }
        let linear = |count: usize| if count == 0 { 0 } else { 1 + count * (self.graph - 1) / self.most };
        let mut total = linear(added + deleted);
        if total < 2 && added > 0 && deleted > 0 {
            total = 2;
        }
        if added < deleted {
            let plus = linear(added);
            (plus, total - plus)
        } else {
            let minus = linear(deleted);
            (total - minus, minus)
        }
    }
}

/// Columns. Names beyond ASCII are quoted, so that each character has one.
fn width(name: &str) -> usize {
    name.chars().count()
}

fn digits(number: u64) -> usize {
    number.checked_ilog10().unwrap_or(0) as usize + 1
}
