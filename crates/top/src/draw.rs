//! Draws the screen. All text of agents comes from `rows.rs` or the pager, which make it harmless.

use presentation::time;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use text::diff::Kind;
use wire::v1::run::State;

use crate::board::Board;
use crate::harmless::{self, columns, fit};
use crate::pager::Pager;
use crate::rows::{Pane, Row, Tone, lives};
use crate::view::{Mode, View};

/// Cells of a column, except for the last one, which has the rest of the line.
const WIDEST: usize = 24;
/// Lines around the list: state, panes, header and keys.
const AROUND: usize = 4;

const HELP: &str = "\
keys of the lists
  1-5, Tab      pane: runs, calls, approvals, alerts, pool
  ↑ ↓ PgUp PgDn line; Home and End: the first and the last one
  Enter         show the item whole
  p             pause the run of the item; in pane 1 also resume a paused one
  x             stop the run of the item, after a yes
  a, d          in pane 3: show the approval whole, to decide on it
  /             filter: only items that contain a text; Esc ends it
  s, r          sort by the next column; reverse
  q, Ctrl-C     leave

keys of a text
  Space, b      next and previous screen; ↑ ↓: one line
  a             approve once, after each line was on the screen
  d             deny
  Esc, q        back to the list";

/// Draws with colours or without.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Painter {
    pub(crate) colour: bool,
}

impl Painter {
    fn tone(self, tone: Tone) -> Style {
        let style = Style::default();
        match tone {
            _ if !self.colour => style,
            Tone::Good => style.fg(Color::Green),
            Tone::Bad => style.fg(Color::Red),
            Tone::Waits => style.fg(Color::Yellow),
            Tone::Dim => style.add_modifier(Modifier::DIM),
            Tone::Plain => style,
        }
    }

    /// Draws the view, and remembers which lines of a text were on the screen.
    pub(crate) fn draw(self, frame: &mut Frame<'_>, view: &mut View) {
        let area = frame.area();
        let (width, height) = (usize::from(area.width), usize::from(area.height));
        if height <= AROUND || width < 20 {
            put(frame, area, 0, Line::from(fit("the terminal is too small", width)));
            return;
        }
        put(frame, area, 0, self.state(view, width));
        let mut mode = std::mem::take(&mut view.mode);
        match &mut mode {
            Mode::Reading(pager, _) => self.text(frame, area, pager),
            Mode::Help => {
                for (row, line) in HELP.lines().take(height - 2).enumerate() {
                    put(frame, area, row + 1, Line::from(fit(line, width)));
                }
            }
            Mode::Table | Mode::Filter | Mode::Stop(_) => self.list(frame, area, view),
        }
        view.mode = mode;
        put(frame, area, height - 1, self.bottom(view, width));
    }

    fn state(self, view: &View, width: usize) -> Line<'static> {
        if let Some(why) = &view.gone {
            let since = view.as_of.as_ref().map(|at| format!(" since {}", clock(at))).unwrap_or_default();
            let text = format!("the daemon is gone{since}, trying again: {}", harmless::cell(why));
            return Line::styled(fit(&text, width), self.tone(Tone::Bad).add_modifier(Modifier::BOLD));
        }
        let at = view.as_of.as_ref().map(clock).unwrap_or_default();
        let text = format!("{at}  {}", counts(&view.board));
        Line::styled(fit(&text, width), Style::default().add_modifier(Modifier::BOLD))
    }

    fn list(self, frame: &mut Frame<'_>, area: Rect, view: &mut View) {
        let (width, height) = (usize::from(area.width), usize::from(area.height));
        put(frame, area, 1, panes(view, width));
        let lines = height - AROUND;
        let selected = view.selected_line();
        let rows = view.rows().len();
        let list = view.list_mut();
        if let Some(line) = selected {
            list.top = list.top.clamp(line.saturating_sub(lines - 1), line);
        }
        list.top = list.top.min(rows.saturating_sub(lines));
        let (top, sort, reversed) = (list.top, list.sort, list.reversed);
        let header = view.pane.header();
        let widths = widths(header, view.rows());
        let mark = |column: usize| match sort {
            Some(sorted) if sorted == column => {
                if reversed {
                    "▼"
                } else {
                    "▲"
                }
            }
            _ => "",
        };
        let titles: Vec<_> =
            header.iter().enumerate().map(|(column, name)| format!("{name}{}", mark(column))).collect();
        let titles = joined(titles.iter().map(String::as_str), &widths, width);
        put(frame, area, 2, Line::styled(titles, Style::default().add_modifier(Modifier::DIM)));
        if !view.unavailable().is_empty() {
            let why = format!("no list: {}", harmless::cell(view.unavailable()));
            for (row, part) in harmless::wrap(&why, width).into_iter().take(lines).enumerate() {
                put(frame, area, 3 + row, Line::from(part.to_owned()));
            }
            return;
        }
        if view.rows().is_empty() {
            let none = if view.filter.is_empty() { "none" } else { "none that the filter shows" };
            put(frame, area, 3, Line::from(fit(none, width)));
        }
        for (line, row) in view.rows().iter().enumerate().skip(top).take(lines) {
            let text = joined(row.cells.iter().map(|cell| cell.text.as_str()), &widths, width);
            let mut style = self.tone(row.tone);
            if selected == Some(line) {
                style = style.add_modifier(Modifier::REVERSED);
            }
            put(frame, area, 3 + line - top, Line::styled(text, style));
        }
    }

    fn text(self, frame: &mut Frame<'_>, area: Rect, pager: &mut Pager) {
        let (width, height) = (usize::from(area.width), usize::from(area.height));
        let title = pager.title.clone();
        let rows: Vec<_> = pager.show(width, height - 3).map(|(row, kind)| (row.to_owned(), kind)).collect();
        let title = format!("{}  {}", harmless::cell(&title), pager.part());
        put(frame, area, 1, Line::styled(fit(&title, width), Style::default().add_modifier(Modifier::BOLD)));
        for (line, (row, kind)) in rows.into_iter().enumerate() {
            let style = self.of_diff(kind);
            put(frame, area, 2 + line, Line::styled(fit(&row, width), style));
        }
    }

    fn of_diff(self, kind: Kind) -> Style {
        let style = Style::default();
        match kind {
            _ if !self.colour => style,
            Kind::Name => style.add_modifier(Modifier::BOLD),
            Kind::Come => style.fg(Color::Green),
            Kind::Gone => style.fg(Color::Red),
            Kind::Place => style.fg(Color::Cyan),
            Kind::Other => style,
        }
    }

    fn bottom(self, view: &View, width: usize) -> Line<'static> {
        let strong = self.tone(Tone::Waits).add_modifier(Modifier::BOLD);
        if let Mode::Stop(run) = &view.mode {
            return Line::styled(fit(&format!("stop run {}? y: yes", harmless::cell(run)), width), strong);
        }
        if view.busy {
            return Line::styled(fit("working…", width), strong);
        }
        if !view.message.is_empty() {
            return Line::styled(fit(&harmless::cell(&view.message), width), strong);
        }
        let keys = match &view.mode {
            Mode::Filter => {
                return Line::from(fit(&format!("filter: {}▏", harmless::cell(&view.filter)), width));
            }
            Mode::Reading(_, Some(_)) => "Space: go on  a: approve once  d: deny  Esc: back",
            Mode::Reading(_, None) => "Space: go on  Esc: back",
            Mode::Help => "any key: back",
            _ if view.pane == Pane::Approvals => {
                "Enter: show and decide  p: pause  x: stop  /: filter  ?: help  q: quit"
            }
            _ => "Enter: show  p: pause  x: stop  /: filter  s: sort  ?: help  q: quit",
        };
        Line::from(fit(keys, width))
    }
}

/// Puts a line on a row of the area.
fn put(frame: &mut Frame<'_>, area: Rect, row: usize, line: Line<'_>) {
    let Ok(row) = u16::try_from(row) else { return };
    if row < area.height {
        frame.render_widget(line, Rect { y: area.y + row, height: 1, ..area });
    }
}

fn clock(at: &wire::Timestamp) -> String {
    time::moment(Some(at)).get(11..19).unwrap_or("-").to_owned()
}

/// Describes all lists in one line.
fn counts(board: &Board) -> String {
    let of = |state: State| board.runs.items.iter().filter(|run| run.state() == state).count();
    let living = board.runs.items.iter().filter(|run| lives(run)).count();
    let (waiting, wanted) = board.pool.items.iter().fold((0u64, 0u64), |(waiting, wanted), kind| {
        (waiting + u64::from(kind.waiting), wanted + u64::from(kind.wanted))
    });
    format!(
        "runs {living} ({} ready, {} paused)  approvals {}  alerts {}  pool {waiting}/{wanted}",
        of(State::Ready),
        of(State::Paused),
        board.approvals.items.len(),
        board.alerts.items.len()
    )
}

fn panes(view: &View, width: usize) -> Line<'static> {
    let mut spans = Vec::new();
    let mut used = 0;
    for pane in Pane::ALL {
        let text = format!(" {} {} ", pane.index() + 1, pane.name());
        used += columns(&text);
        if used > width {
            break;
        }
        let is_shown = pane == view.pane;
        let style =
            if is_shown { Style::default().add_modifier(Modifier::REVERSED) } else { Style::default() };
        spans.push(Span::styled(text, style));
    }
    if !view.filter.is_empty() && used < width {
        let filter = format!("  /{}", harmless::cell(&view.filter));
        spans.push(Span::from(fit(&filter, width - used)));
    }
    Line::from(spans)
}

/// Returns the width of each column: that of its widest cell, up to a bound.
fn widths(header: &[&str], rows: &[Row]) -> Vec<usize> {
    let of = |(column, name): (usize, &&str)| {
        let cells = rows.iter().filter_map(|row| row.cells.get(column)).map(|cell| columns(&cell.text));
        // A header has a mark if its column is the sorted one.
        cells.chain([columns(name) + 1]).max().unwrap_or(0).min(WIDEST)
    };
    header.iter().enumerate().map(of).collect()
}

/// Joins the cells of a line. The last cell has what is left of it.
fn joined<'a>(cells: impl Iterator<Item = &'a str>, widths: &[usize], width: usize) -> String {
    let mut line = String::new();
    for (column, cell) in cells.enumerate() {
        let is_last = column + 1 == widths.len();
        let wide = widths.get(column).copied().unwrap_or(WIDEST);
        if is_last {
            line.push_str(cell);
        } else {
            line.push_str(&fit(cell, wide));
            line.push(' ');
        }
    }
    fit(&line, width)
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use wire::v1::{PoolKind, Run};

    use super::*;

    fn screen(view: &mut View, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| Painter { colour: true }.draw(frame, view)).unwrap();
        let buffer = terminal.backend().buffer();
        let row = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
        (0..height).map(row).collect()
    }

    fn view() -> View {
        let mut board = Board::default();
        let run = |number: u32| Run {
            run_id: format!("run-{number}"),
            agent_id: "ali\x1b[2Jce".into(),
            profile: "build".into(),
            state: State::Ready.into(),
            ..Default::default()
        };
        board.runs.items = (0..40).map(run).collect();
        board.pool.items = vec![PoolKind { name: "build".into(), waiting: 1, wanted: 4 }];
        board.alerts.unavailable = "needs the role operator".into();
        let mut view = View::default();
        view.update(board);
        view
    }

    #[test]
    fn the_lists_fit_80_by_24_and_stay_harmless() {
        let rows = screen(&mut view(), 80, 24);
        assert!(
            rows[0].contains("runs 40 (40 ready, 0 paused)  approvals 0  alerts 0  pool 1/4"),
            "{}",
            rows[0]
        );
        assert_eq!(rows[1], " 1 runs  2 calls  3 approvals  4 alerts  5 pool");
        assert!(rows[2].starts_with("RUN    STATE  PROFILE  AGENT"), "{}", rows[2]);
        assert!(rows[3].starts_with("run-0  READY  build    ali␛[2Jce"), "{}", rows[3]);
        assert!(rows[22].starts_with("run-19"), "{}", rows[22]);
        assert!(rows[23].starts_with("Enter: show"), "{}", rows[23]);
    }

    #[test]
    fn a_small_terminal_shows_less_and_a_tiny_one_says_so() {
        let rows = screen(&mut view(), 24, 6);
        assert!(rows[3].starts_with("run-0"), "{rows:?}");
        assert_eq!(screen(&mut view(), 24, 3)[0], "the terminal is too smal");
        assert_eq!(screen(&mut view(), 1, 1)[0], "t");
    }

    #[test]
    fn a_list_that_the_caller_may_not_see_says_so() {
        let mut view = view();
        view.pane = Pane::Alerts;
        assert_eq!(screen(&mut view, 60, 8)[3], "no list: needs the role operator");
    }

    #[test]
    fn a_daemon_that_is_gone_is_told_above_the_last_lists() {
        let mut view = view();
        view.gone = Some("the connection\nbroke".into());
        let rows = screen(&mut view, 80, 10);
        assert!(rows[0].starts_with("the daemon is gone since "), "{}", rows[0]);
        assert!(rows[0].contains("trying again: the connection␊broke"), "{}", rows[0]);
        assert!(rows[3].starts_with("run-0"));
    }

    #[test]
    fn an_approval_is_read_in_its_own_colours() {
        let mut view = view();
        view.read("approval a".into(), "@@ -1 +1 @@\n-rm\r\n+ls\x1b[1A\n", None);
        let rows = screen(&mut view, 40, 10);
        assert_eq!(rows[1], "approval a  1-3 of 3");
        assert_eq!(&rows[2..5], ["@@ -1 +1 @@", "-rm␍", "+ls␛[1A"]);
    }
}
