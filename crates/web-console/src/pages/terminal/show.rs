//! Renders the pages of terminals.

use std::collections::BTreeMap;

use maud::{Markup, html};
use text::Shape;
use text::clean::clean;
use wire::v1::terminal_closed::Reason;
use wire::v1::{AuditEvent, TerminalClosed};

use super::super::elements::{Part, id_path, part, state, table};
use super::super::record::Record;
use super::super::runs::head;
use super::super::{figures, foreign};

/// Returns the page of a live terminal: with the hidden part of its form and the nonce of styles, or the reason why there is none.
pub(super) fn terminal(run: &str, may: &Result<(Markup, &str), &str>) -> Markup {
    html! {
        (head(run, "terminal"))
        @match may {
            Ok((hidden, nonce)) => {
                p.note {
                    "No policy judges what you type here. The whole session is recorded, and on record. Processes of the run can read the "
                    "input, unless the run is paused for the terminal."
                }
                form.filter #terminal-form method="post" action=[id_path("/runs/", run, "/terminal")] {
                    (hidden)
                    label { input type="checkbox" name="paused" value="true"; " Pause the run meanwhile" }
                    button type="submit" { "Open a terminal" }
                }
                (screen("live", None, nonce))
                p role="status" #terminal-status {}
                noscript { p.note { "A terminal needs JavaScript. Use " code { "coffer run shell" } "." } }
            }
            Err(reason) => p.note { (reason) },
        }
    }
}

/// Returns the element in which the script shows a terminal, and the scripts.
fn screen(kind: &str, source: Option<String>, nonce: &str) -> Markup {
    html! {
        link rel="stylesheet" href="/assets/xterm.css";
        div.terminal #terminal role="region" aria-label="Terminal" data-kind=(kind) data-source=[source] data-nonce=(nonce) {}
        script src="/assets/xterm.js" defer {}
        script src="/assets/terminal.js" defer {}
    }
}

/// A session, as its records tell of it.
#[derive(Default)]
struct Session<'a> {
    opened: Option<&'a AuditEvent>,
    closed: Option<&'a AuditEvent>,
}

/// Returns the list of the recordings of a run.
pub(super) fn recordings(run: &str, events: &Part<Vec<AuditEvent>>) -> Markup {
    html! {
        (head(run, "recordings"))
        p.note { "A recording has what a terminal showed. Playing it is on record. What was typed is left out." }
        (part(events, |events| {
            let sessions = sessions(events);
            html! {
                @if sessions.is_empty() { p { "No terminal was open in this run." } }
                // Ids are in the order of time.
                @else {
                    (table("Sessions, newest first", HEADS, sessions.iter().rev().map(|(id, session)| row(run, id, session))))
                }
            }
        }))
    }
}

const HEADS: &[&str] = &["Opened", "By", "Length", "End", "Shown", "Recording"];

fn sessions(events: &[AuditEvent]) -> BTreeMap<String, Session<'_>> {
    let mut sessions = BTreeMap::<String, Session<'_>>::new();
    for event in events {
        let id = Record::of(event).text("/details/session_id").to_owned();
        let session = sessions.entry(id).or_default();
        match event.kind.as_str() {
            "session_opened" => session.opened = Some(event),
            _ => session.closed = Some(event),
        }
    }
    sessions
}

fn row(run: &str, id: &str, session: &Session<'_>) -> Vec<Markup> {
    let of = |event: Option<&AuditEvent>| event.map(Record::of);
    let closed = of(session.closed);
    let either = session.opened.or(session.closed);
    let play = id_path("/runs/", run, "/recordings/").and_then(|path| id_path(&path, id, ""));
    vec![
        figures::moment(session.opened.and_then(|event| event.time.as_ref())),
        foreign::line(either.map(|event| event.principal.as_str()).unwrap_or_default()),
        html! { @if let Some(us) = closed.as_ref().and_then(|closed| closed.number("/duration_us")) { (figures::micros(us)) } },
        html! {
            @match &closed {
                Some(closed) => (foreign::line(closed.text("/outcome/reason"))),
                None => (state("open")),
            }
        },
        html! { @if let Some(bytes) = closed.as_ref().and_then(|closed| closed.number("/usage/bytes_out")) { (figures::size(bytes)) } },
        html! {
            @match &play {
                Some(path) => {
                    a href=(path) { "Play" span.visually-hidden { " the recording " (id) } }
                    " "
                    a href={ (path) "?as=text" } { "As text" span.visually-hidden { " the recording " (id) } }
                }
                None => (foreign::line(id)),
            }
        },
    ]
}

/// Returns the page that plays a recording.
pub(super) fn player(run: &str, session: &str, nonce: &str) -> Markup {
    let path = id_path("/runs/", run, "/recordings/").and_then(|path| id_path(&path, session, ""));
    html! {
        (head(run, "recordings"))
        h2 { "Recording " (foreign::heading(session)) }
        div.actions {
            button #play type="button" { "Play" }
            label { "Speed " select #speed { option value="1" { "1" } option value="2" { "2" } option value="8" { "8" } } }
            @if let Some(path) = &path { a.button href={ (path) "?as=text" } { "As text" } }
        }
        (screen("recording", path.map(|path| path + "/events"), nonce))
        p role="status" #terminal-status {}
        noscript { p.note { "Playing needs JavaScript." } }
    }
}

/// Returns a recording as text.
pub(super) fn as_text(run: &str, session: &str, text: &Part<(String, bool)>, has_xterm: bool) -> Markup {
    html! {
        (head(run, "recordings"))
        h2 { "Recording " (foreign::heading(session)) }
        @if !has_xterm { p.note { "This build plays no recordings, because xterm.js was not fetched before it. They are shown as text." } }
        (part(text, |(text, is_cut)| html! {
            (foreign::block(text))
            @if *is_cut { p.note { "The recording goes on. `asciinema play` of its file shows all of it." } }
        }))
    }
}

/// Returns the last line of a terminal that has ended.
pub(super) fn goodbye(closed: &TerminalClosed) -> String {
    let why = match closed.reason() {
        Reason::Exited => match (closed.exit_code, closed.signal) {
            (Some(code), _) => format!("its command exited with {code}"),
            (None, Some(signal)) => format!("signal {signal} ended its command"),
            (None, None) => "its command has ended".to_owned(),
        },
        Reason::Disconnected => "the connection was lost".to_owned(),
        Reason::RunEnded => "the run has ended".to_owned(),
        Reason::TimedOut => "it was idle or open for too long".to_owned(),
        Reason::RecordingFull => "its recording is full".to_owned(),
        Reason::Lost | Reason::Unspecified => "it was lost".to_owned(),
    };
    format!("\r\n[The terminal is closed: {why}.]\r\n")
}

/// Returns the last line of a terminal that was refused or broke.
pub(super) fn lost(message: &str) -> String {
    format!("\r\n[The terminal is closed: {}]\r\n", clean(message, Shape::Line))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::foreign::tests::{HOSTILE, assert_harmless};
    use super::*;

    const RUN: &str = "0198a1b2-0000-7000-8000-00000000aaaa";
    const SESSION: &str = "0198a1b2-0000-7000-8000-00000000bbbb";

    fn event(kind: &str, session: &str, more: serde_json::Value) -> AuditEvent {
        let mut record = json!({ "details": { "session_id": session } });
        record["outcome"] = more;
        AuditEvent {
            kind: kind.to_owned(),
            principal: HOSTILE.to_owned(),
            record_json: record.to_string(),
            ..Default::default()
        }
    }

    #[test]
    fn texts_of_recordings_are_harmless() {
        let events = vec![
            event("session_opened", HOSTILE, json!({})),
            event("session_closed", SESSION, json!({ "reason": HOSTILE })),
        ];
        assert_harmless(&recordings(RUN, &Ok(events)));
        assert_harmless(&recordings(RUN, &Err(HOSTILE.to_owned())));
        assert_harmless(&as_text(RUN, SESSION, &Ok((HOSTILE.to_owned(), true)), false));
        assert_harmless(&as_text(RUN, HOSTILE, &Err(HOSTILE.to_owned()), true));
        assert_harmless(&player(HOSTILE, HOSTILE, "00"));
        assert!(!lost(HOSTILE).contains(['\u{1b}', '\u{202e}']));
    }

    #[test]
    fn a_session_is_one_row_with_its_beginning_and_end() {
        let events = [
            event("session_closed", SESSION, json!({ "reason": "EXITED" })),
            event("session_opened", SESSION, json!(null)),
        ];
        let shown = recordings(RUN, &Ok(events.to_vec())).0;
        assert_eq!(shown.matches("EXITED").count(), 1);
        assert!(shown.contains(&format!("href=\"/runs/{RUN}/recordings/{SESSION}\"")), "{shown}");
        let open = recordings(RUN, &Ok(events[1..].to_vec())).0;
        assert!(open.contains(">open<"), "{open}");
    }

    #[test]
    fn a_terminal_is_offered_to_those_who_may_open_one() {
        let hidden = html! { input type="hidden" name="csrf" value="x"; };
        assert!(terminal(RUN, &Ok((hidden, "00ff"))).0.contains("data-nonce=\"00ff\""));
        let refused = terminal(RUN, &Err("Terminals are for operators.")).0;
        assert!(
            refused.contains("for operators") && !refused.contains("<form") && !refused.contains("<script")
        );
    }

    #[test]
    fn the_end_of_a_terminal_has_a_reason() {
        let of = |reason: Reason, exit_code, signal| {
            goodbye(&TerminalClosed { reason: reason.into(), exit_code, signal })
        };
        assert!(of(Reason::Exited, Some(7), None).contains("exited with 7"));
        assert!(of(Reason::Exited, None, Some(9)).contains("signal 9"));
        assert!(of(Reason::RecordingFull, None, None).contains("recording is full"));
    }
}
