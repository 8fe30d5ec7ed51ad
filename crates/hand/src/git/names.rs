//! The formats with one line a path: `--name-only`, `--name-status`, `--numstat`.

use super::delta::{Change, Kind};
use super::output::Output;
use super::quote::{Spaces, quoted, renamed};

/// `--name-only`
pub(super) fn name_only(change: &Change<'_>, output: &mut Output) {
    output.path_line(&change.new.path);
}

/// `--name-status`
pub(super) fn name_status(change: &Change<'_>, output: &mut Output) {
    let letter = change.kind.letter();
    if let Kind::Renamed { similarity } = change.kind {
        output.push_str(&format!("{letter}{similarity:03}\t{}\t", quoted(&change.old.path, Spaces::Plain)));
    } else {
        output.push_str(&format!("{letter}\t"));
    }
    output.path_line(&change.new.path);
}

/// `--numstat`
pub(super) fn numstat(change: &Change<'_>, output: &mut Output) {
    let name = shown(change);
    if change.is_binary() {
        output.push_str(&format!("-\t-\t{name}\n"));
    } else {
        let (added, deleted) = change.lines();
        output.push_str(&format!("{added}\t{deleted}\t{name}\n"));
    }
}

/// The path; for a rename both.
pub(super) fn shown(change: &Change<'_>) -> String {
    if matches!(change.kind, Kind::Renamed { .. }) {
        renamed(&change.old.path, &change.new.path)
    } else {
        quoted(&change.new.path, Spaces::Plain)
    }
}
