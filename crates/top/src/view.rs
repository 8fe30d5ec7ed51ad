//! The state of the screen, and what keys do to it. Draws nothing and asks no one, so that tests can drive it.

use std::collections::BTreeSet;
use std::time::Instant;

use presentation::time;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::board::Board;
use crate::decide::Shown;
use crate::pager::Pager;
use crate::rows::{Pane, Row, rows};

/// Number of characters of a filter.
const FILTER: usize = 64;
/// Number of approvals that are remembered as shown.
const SHOWN: usize = 10_000;

/// Task that a key asks for.
#[derive(Debug)]
pub(crate) enum Action {
    Quit,
    /// Begin the next round now.
    Refresh,
    /// Show an item whole.
    Look(Pane, String),
    Pause(String),
    Resume(String),
    Stop(String),
    Approve(Shown),
    Deny(Shown),
}

/// Part of the screen that takes the keys.
#[derive(Debug, Default)]
pub(crate) enum Mode {
    #[default]
    Table,
    /// The user types a filter.
    Filter,
    /// The user is asked about the stop of a run.
    Stop(String),
    /// The user reads an item; an approval can be decided on.
    Reading(Box<Pager>, Option<Box<Shown>>),
    Help,
}

/// State of one pane.
#[derive(Debug, Default)]
pub(crate) struct List {
    /// Id of the selected item.
    selected: String,
    /// Line of the selected item, for when it is gone.
    line: usize,
    /// First line on the screen.
    pub(crate) top: usize,
    /// Column by which the list is sorted; `None`: the daemon's order.
    pub(crate) sort: Option<usize>,
    pub(crate) reversed: bool,
}

#[derive(Debug, Default)]
pub(crate) struct View {
    pub(crate) board: Board,
    /// Time of the last round, and the reason why there is no later one.
    pub(crate) as_of: Option<wire::Timestamp>,
    pub(crate) gone: Option<String>,
    pub(crate) pane: Pane,
    lists: [List; 5],
    rows: Vec<Row>,
    pub(crate) filter: String,
    pub(crate) mode: Mode,
    /// Result of the last action, or the reason why there was none.
    pub(crate) message: String,
    /// True while an action is under way.
    pub(crate) busy: bool,
    /// True if approvals are shown by themselves, one after the other.
    shows_approvals: bool,
    /// Run whose approvals are shown so; empty for all.
    reviewed: String,
    /// Approvals that were shown so.
    shown: BTreeSet<String>,
}

impl View {
    /// Creates a view that shows the pending approvals of a run, or of all with an empty id, one after the other.
    pub(crate) fn reviewing(run_id: String) -> Self {
        let (filter, reviewed) = (run_id.clone(), run_id);
        Self { pane: Pane::Approvals, filter, reviewed, shows_approvals: true, ..Self::default() }
    }

    /// Takes the lists of a round.
    pub(crate) fn update(&mut self, board: Board) {
        self.board = board;
        self.as_of = Some(time::now());
        self.gone = None;
        self.arrange();
    }

    pub(crate) fn list(&self) -> &List {
        &self.lists[self.pane.index()]
    }

    pub(crate) fn list_mut(&mut self) -> &mut List {
        &mut self.lists[self.pane.index()]
    }

    pub(crate) fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Returns the reason why the pane has no list; empty if it has one.
    pub(crate) fn unavailable(&self) -> &str {
        let board = &self.board;
        match self.pane {
            Pane::Runs => &board.runs.unavailable,
            Pane::Calls => &board.calls.unavailable,
            Pane::Approvals => &board.approvals.unavailable,
            Pane::Alerts => &board.alerts.unavailable,
            Pane::Pool => &board.pool.unavailable,
        }
    }

    /// Makes the rows of the pane, and finds the selected item among them.
    fn arrange(&mut self) {
        let filter = self.filter.to_lowercase();
        let mut rows = rows(&self.board, self.pane, &time::now());
        rows.retain(|row| filter.is_empty() || row.contains(&filter));
        let list = &mut self.lists[self.pane.index()];
        if let Some(column) = list.sort {
            rows.sort_by(|one, other| one.order(other, column));
        }
        if list.reversed {
            rows.reverse();
        }
        if let Some(line) = rows.iter().position(|row| row.id == list.selected) {
            list.line = line;
        } else {
            // The item is gone. A key that was meant for it must not meet its neighbour: the first key moves the cursor.
            list.line = list.line.min(rows.len().saturating_sub(1));
            if list.selected.is_empty() {
                list.selected = rows.first().map(|row| row.id.clone()).unwrap_or_default();
                list.line = 0;
            }
        }
        self.rows = rows;
    }

    /// Returns the line of the selected item, or `None` if it is gone.
    pub(crate) fn selected_line(&self) -> Option<usize> {
        let list = self.list();
        self.rows.get(list.line).filter(|row| row.id == list.selected).map(|_| list.line)
    }

    fn selected(&self) -> Option<&Row> {
        self.selected_line().and_then(|line| self.rows.get(line))
    }

    fn select(&mut self, line: usize) {
        let line = line.min(self.rows.len().saturating_sub(1));
        let id = self.rows.get(line).map(|row| row.id.clone()).unwrap_or_default();
        let list = self.list_mut();
        (list.line, list.selected) = (line, id);
    }

    fn move_by(&mut self, lines: isize) {
        let at = self.list().line;
        // The line of an item that is gone now has its neighbour.
        let lines = if self.selected_line().is_none() { 0 } else { lines };
        self.select(at.saturating_add_signed(lines));
    }

    fn show_pane(&mut self, pane: Pane) {
        self.pane = pane;
        self.arrange();
    }

    /// Returns the oldest approval that was not shown by itself yet. Each is returned once, also if it cannot be fetched then.
    pub(crate) fn next_approval(&mut self) -> Option<Action> {
        if !self.shows_approvals || self.gone.is_some() || !matches!(self.mode, Mode::Table) {
            return None;
        }
        let rows = rows(&self.board, Pane::Approvals, &time::now());
        let filter = self.filter.to_lowercase();
        // The filter alone would find a run's id in a text that another run's agent wrote.
        let is_of = |row: &Row| self.reviewed.is_empty() || row.run == self.reviewed;
        let next = rows
            .into_iter()
            .find(|row| !self.shown.contains(&row.id) && is_of(row) && row.contains(&filter))?;
        self.shown.insert(next.id.clone());
        while self.shown.len() > SHOWN {
            // Ids begin with their time, so the first is the oldest.
            self.shown.pop_first();
        }
        Some(Action::Look(Pane::Approvals, next.id))
    }

    /// Shows the text of an item that an action has fetched.
    pub(crate) fn read(&mut self, title: String, text: &str, approval: Option<Shown>) {
        self.message.clear();
        self.mode = Mode::Reading(Box::new(Pager::new(title, text)), approval.map(Box::new));
    }

    /// Leaves the text on the screen.
    pub(crate) fn close(&mut self) {
        self.mode = Mode::Table;
        self.arrange();
    }

    /// Takes a key. `now` is the time at which it was typed.
    pub(crate) fn key(&mut self, key: KeyEvent, now: Instant) -> Option<Action> {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => Some(Action::Quit),
                KeyCode::Char('l' | 'r') => Some(Action::Refresh),
                _ => None,
            };
        }
        self.message.clear();
        match &mut self.mode {
            Mode::Table => self.table_key(key.code),
            Mode::Filter => {
                self.filter_key(key.code);
                None
            }
            Mode::Stop(run) => {
                let run = std::mem::take(run);
                self.mode = Mode::Table;
                if key.code == KeyCode::Char('y') {
                    return Some(Action::Stop(run));
                }
                "not stopped".clone_into(&mut self.message);
                None
            }
            Mode::Help => {
                self.mode = Mode::Table;
                None
            }
            Mode::Reading(..) => self.reading_key(key.code, now),
        }
    }

    fn table_key(&mut self, code: KeyCode) -> Option<Action> {
        const PAGE: isize = 10;
        match code {
            KeyCode::Char('q') => return Some(Action::Quit),
            KeyCode::Char('?' | 'h') => self.mode = Mode::Help,
            KeyCode::Char('/') => self.mode = Mode::Filter,
            KeyCode::Esc => {
                self.filter.clear();
                self.arrange();
            }
            KeyCode::Tab | KeyCode::Right => self.show_pane(Pane::ALL[(self.pane.index() + 1) % 5]),
            KeyCode::BackTab | KeyCode::Left => self.show_pane(Pane::ALL[(self.pane.index() + 4) % 5]),
            KeyCode::Char(digit @ '1'..='5') => {
                let number = digit.to_digit(10).and_then(|number| usize::try_from(number).ok()).unwrap_or(1);
                self.show_pane(Pane::ALL[number - 1]);
            }
            KeyCode::Down | KeyCode::Char('j') => self.move_by(1),
            KeyCode::Up | KeyCode::Char('k') => self.move_by(-1),
            KeyCode::PageDown => self.move_by(PAGE),
            KeyCode::PageUp => self.move_by(-PAGE),
            KeyCode::Home => self.select(0),
            KeyCode::End => self.select(usize::MAX),
            KeyCode::Char('s') => {
                let columns = self.pane.header().len();
                let list = self.list_mut();
                list.sort = match list.sort {
                    None => Some(0),
                    Some(column) if column + 1 < columns => Some(column + 1),
                    Some(_) => None,
                };
                self.arrange();
            }
            KeyCode::Char('r') => {
                let list = self.list_mut();
                list.reversed = !list.reversed;
                self.arrange();
            }
            KeyCode::Enter | KeyCode::Char('a' | 'd') if self.pane != Pane::Pool => {
                if code != KeyCode::Enter && self.pane != Pane::Approvals {
                    "approvals are in pane 3".clone_into(&mut self.message);
                    return None;
                }
                // Also for `a` and `d`: the whole comes before the decision.
                return self.on_selected(|row, pane| Some(Action::Look(pane, row.id.clone())));
            }
            KeyCode::Char('p') => {
                let paused = self.pane == Pane::Runs && self.selected().is_some_and(|row| row.is_paused);
                return self.on_selected(|row, _| match (row.run.is_empty(), paused) {
                    (true, _) => None,
                    (false, true) => Some(Action::Resume(row.run.clone())),
                    (false, false) => Some(Action::Pause(row.run.clone())),
                });
            }
            KeyCode::Char('x') => {
                if let Some(Action::Stop(run)) =
                    self.on_selected(|row, _| (!row.run.is_empty()).then(|| Action::Stop(row.run.clone())))
                {
                    self.mode = Mode::Stop(run);
                }
            }
            _ => {}
        }
        None
    }

    /// Returns the action on the selected item, or says that there is none.
    fn on_selected(&mut self, action: impl FnOnce(&Row, Pane) -> Option<Action>) -> Option<Action> {
        if self.gone.is_some() {
            "the daemon is gone: nothing was done".clone_into(&mut self.message);
            return None;
        }
        let action = self.selected().and_then(|row| action(row, self.pane));
        if action.is_none() {
            "select an item first".clone_into(&mut self.message);
        }
        action
    }

    fn filter_key(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.mode = Mode::Table,
            KeyCode::Esc => {
                self.filter.clear();
                self.mode = Mode::Table;
            }
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Char(c) if !c.is_control() && self.filter.chars().count() < FILTER => {
                self.filter.push(c);
            }
            _ => {}
        }
        self.arrange();
    }

    fn reading_key(&mut self, code: KeyCode, now: Instant) -> Option<Action> {
        let Mode::Reading(pager, approval) = &mut self.mode else { return None };
        match code {
            KeyCode::Esc | KeyCode::Char('q') => self.close(),
            KeyCode::Down | KeyCode::Char('j') | KeyCode::Enter => pager.scroll(1),
            KeyCode::Up | KeyCode::Char('k') => pager.scroll(-1),
            KeyCode::PageDown | KeyCode::Char(' ') => pager.page(true),
            KeyCode::PageUp | KeyCode::Char('b') => pager.page(false),
            KeyCode::Home => pager.go_to_start(),
            KeyCode::End => pager.go_to_end(),
            KeyCode::Char(key @ ('a' | 'd')) => {
                let Some(shown) = approval else { return None };
                if self.gone.is_some() {
                    "the daemon is gone: nothing was decided".clone_into(&mut self.message);
                    return None;
                }
                if key == 'd' && pager.is_new(now) {
                    "read it first".clone_into(&mut self.message);
                    return None;
                }
                if key == 'd' {
                    return Some(Action::Deny((**shown).clone()));
                }
                match pager.not_read(now) {
                    Some(why) => self.message = why,
                    None => return Some(Action::Approve((**shown).clone())),
                }
            }
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use wire::v1::Run;
    use wire::v1::run::State;

    use super::*;

    fn run(id: &str, state: State) -> Run {
        Run { run_id: id.into(), state: state.into(), agent_id: format!("agent-{id}"), ..Default::default() }
    }

    fn with_runs(runs: &[&str]) -> View {
        let mut view = View::default();
        view.update(board(runs));
        view
    }

    fn board(runs: &[&str]) -> Board {
        let mut board = Board::default();
        board.runs.items = runs.iter().map(|id| run(id, State::Ready)).collect();
        board
    }

    fn press(view: &mut View, code: KeyCode) -> Option<Action> {
        view.key(KeyEvent::from(code), Instant::now())
    }

    fn paused(action: Option<Action>) -> Option<String> {
        if let Some(Action::Pause(run)) = action { Some(run) } else { None }
    }

    #[test]
    fn the_selection_follows_its_item_and_never_moves_to_another_by_itself() {
        let mut view = with_runs(&["a", "b"]);
        press(&mut view, KeyCode::Down);
        view.update(board(&["new", "a", "b"]));
        assert_eq!(paused(press(&mut view, KeyCode::Char('p'))).as_deref(), Some("b"));
        view.update(board(&["new", "a"]));
        assert!(press(&mut view, KeyCode::Char('p')).is_none(), "the item is gone");
        assert_eq!(view.message, "select an item first");
        press(&mut view, KeyCode::Up);
        assert_eq!(paused(press(&mut view, KeyCode::Char('p'))).as_deref(), Some("a"));
    }

    #[test]
    fn a_stop_is_asked_about_and_only_yes_stops() {
        let mut view = with_runs(&["a"]);
        assert!(press(&mut view, KeyCode::Char('x')).is_none());
        assert!(matches!(&view.mode, Mode::Stop(run) if run == "a"));
        assert!(press(&mut view, KeyCode::Enter).is_none());
        assert_eq!(view.message, "not stopped");
        press(&mut view, KeyCode::Char('x'));
        // Another list arrives between question and answer.
        view.update(board(&["b"]));
        assert!(matches!(press(&mut view, KeyCode::Char('y')), Some(Action::Stop(run)) if run == "a"));
    }

    #[test]
    fn consent_needs_the_whole_text_on_the_screen() {
        let mut view = View::default();
        view.read("approval".into(), "1\n2\n3\n", Some(Shown::default()));
        let later = Instant::now() + Duration::from_secs(5);
        let draw = |view: &mut View| {
            let Mode::Reading(pager, _) = &mut view.mode else { panic!("{:?}", view.mode) };
            let _ = pager.show(20, 2).count();
        };
        draw(&mut view);
        assert!(view.key(KeyEvent::from(KeyCode::Char('a')), later).is_none());
        assert!(view.message.starts_with("one line was not shown yet"), "{}", view.message);
        press(&mut view, KeyCode::Char(' '));
        draw(&mut view);
        view.gone = Some("it ended".into());
        assert!(view.key(KeyEvent::from(KeyCode::Char('a')), later).is_none());
        view.gone = None;
        assert!(matches!(view.key(KeyEvent::from(KeyCode::Char('a')), later), Some(Action::Approve(_))));
    }

    #[test]
    fn approvals_come_by_themselves_each_once_and_a_key_for_the_one_before_decides_nothing() {
        let mut view = View::reviewing(String::new());
        let approval = |id: &str| wire::v1::Approval { approval_id: id.into(), ..Default::default() };
        let mut board = Board::default();
        board.approvals.items = vec![approval("1"), approval("2")];
        view.update(board);
        for id in ["1", "2"] {
            assert!(matches!(view.next_approval(), Some(Action::Look(Pane::Approvals, next)) if next == id));
            view.read(id.into(), "text", Some(Shown::of(approval(id))));
            assert!(view.next_approval().is_none(), "one is being read");
            assert!(press(&mut view, KeyCode::Char('d')).is_none(), "it has just appeared");
            press(&mut view, KeyCode::Esc);
        }
        assert!(view.next_approval().is_none());
    }

    #[test]
    fn a_review_of_one_run_shows_no_approval_of_another_that_names_it() {
        let mut view = View::reviewing("run-a".into());
        let approval = |id: &str, run: &str, why: &str| wire::v1::Approval {
            approval_id: id.into(),
            run_id: run.into(),
            justification: why.into(),
            ..Default::default()
        };
        let mut board = Board::default();
        board.approvals.items = vec![approval("1", "run-b", "as run-a asked"), approval("2", "run-a", "")];
        view.update(board);
        assert!(matches!(view.next_approval(), Some(Action::Look(Pane::Approvals, next)) if next == "2"));
        assert!(view.next_approval().is_none());
        press(&mut view, KeyCode::Esc);
        assert!(view.next_approval().is_none(), "also without a filter");
    }

    #[test]
    fn lists_are_filtered_and_sorted() {
        let mut view = with_runs(&["b", "a", "c"]);
        press(&mut view, KeyCode::Char('s'));
        let ids = |view: &View| view.rows().iter().map(|row| row.id.clone()).collect::<Vec<_>>();
        assert_eq!(ids(&view), ["a", "b", "c"]);
        press(&mut view, KeyCode::Char('r'));
        assert_eq!(ids(&view), ["c", "b", "a"]);
        for c in "/agent-B".chars() {
            press(&mut view, KeyCode::Char(c));
        }
        assert_eq!(ids(&view), ["b"]);
        press(&mut view, KeyCode::Enter);
        press(&mut view, KeyCode::Esc);
        assert_eq!(ids(&view).len(), 3);
    }

    #[test]
    fn no_key_does_anything_while_the_daemon_is_gone() {
        let mut view = with_runs(&["a"]);
        view.gone = Some("it ended".into());
        for key in ['p', 'x'] {
            assert!(press(&mut view, KeyCode::Char(key)).is_none());
            assert!(matches!(view.mode, Mode::Table));
        }
        assert!(press(&mut view, KeyCode::Enter).is_none());
    }
}
