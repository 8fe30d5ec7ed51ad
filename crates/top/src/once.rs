//! `coffer top --once`: one round, as tables or as a document.

use presentation::failure::Ended;
use presentation::time;
use presentation::ui::Ui;

use crate::board::Board;
use crate::rows::{Pane, rows};

/// Prints the lists.
pub(crate) fn print(ui: Ui, board: Board) -> Ended {
    ui.answer_and_talk(board, |board, page, talk| {
        let now = time::now();
        let mut is_first = true;
        for pane in Pane::ALL {
            let unavailable = [
                &board.runs.unavailable,
                &board.calls.unavailable,
                &board.approvals.unavailable,
                &board.alerts.unavailable,
                &board.pool.unavailable,
            ][pane.index()];
            if !unavailable.is_empty() {
                talk.own(pane.name()).own(": ").word(unavailable).end_line();
                continue;
            }
            let rows = rows(&board, pane, &now);
            if rows.is_empty() {
                continue;
            }
            if !std::mem::take(&mut is_first) {
                page.own("\n");
            }
            let rows = rows.into_iter().map(|row| row.cells.into_iter().map(|cell| cell.text).collect());
            page.table(pane.header(), rows);
        }
        if is_first {
            talk.own("no runs, calls, approvals, alerts or containers that wait\n");
        }
    })
}
