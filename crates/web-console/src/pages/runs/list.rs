//! The list of runs.

use maud::{Markup, html};
use wire::v1::Run;
use wire::v1::run::State;

use super::super::elements::{next, run_link, select, state, table};
use super::super::{figures, foreign};
use crate::form::Fields;

/// Runs of a page.
pub(crate) const PAGE: u32 = 50;

/// Filter of the list, as the form has it.
#[derive(Debug, Default)]
pub(crate) struct Filter {
    pub(crate) state: String,
    pub(crate) page: String,
}

impl Filter {
    pub(crate) fn of(fields: &Fields) -> Self {
        Self { state: fields.get("state").to_owned(), page: fields.get("page").to_owned() }
    }

    pub(crate) fn state(&self) -> State {
        State::from_str_name(&self.state).unwrap_or_default()
    }
}

pub(crate) fn render(runs: &[Run], filter: &Filter, token: &str) -> Markup {
    const STATES: [(&str, &str); 7] = [
        ("", "all"),
        ("CREATING", "creating"),
        ("READY", "ready"),
        ("PAUSED", "paused"),
        ("STOPPING", "stopping"),
        ("STOPPED", "stopped"),
        ("FAILED", "failed"),
    ];
    html! {
        h1 { "Runs" }
        form.filter method="get" action="/runs" {
            (select("state", "State", &STATES, &filter.state))
            button type="submit" { "Show" }
        }
        div #runs data-live { @if runs.is_empty() { p { "No run matches." } } @else { (table_of(runs)) } }
        (next("/runs", &[("state", &filter.state)], token))
    }
}

fn table_of(runs: &[Run]) -> Markup {
    let rows = runs.iter().map(|run| {
        vec![
            run_link(&run.run_id),
            state(&figures::word(run.state().as_str_name())),
            foreign::line(&run.agent_id),
            foreign::line(&run.profile),
            foreign::line(&run.principal),
            figures::moment(run.created_at.as_ref()),
            figures::moment(run.ended_at.as_ref()),
            labels(run),
        ]
    });
    table(
        "Runs, newest first",
        &["Run", "State", "Agent", "Profile", "Made by", "Created", "Ended", "Labels"],
        rows,
    )
}

/// Returns the labels of a run.
pub(super) fn labels(run: &Run) -> Markup {
    let mut labels: Vec<String> = run.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    labels.sort_unstable();
    if labels.is_empty() {
        html! {}
    } else {
        foreign::line(&labels.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::foreign::tests::{HOSTILE, assert_harmless};
    use super::*;

    #[test]
    fn texts_of_runs_are_harmless() {
        let hostile = || HOSTILE.to_owned();
        let run = Run {
            run_id: hostile(),
            agent_id: hostile(),
            profile: hostile(),
            principal: hostile(),
            labels: [(hostile(), hostile())].into(),
            ..Default::default()
        };
        assert_harmless(&render(&[run], &Filter { state: hostile(), page: hostile() }, HOSTILE));
    }

    #[test]
    fn the_chosen_state_is_kept_for_the_next_page() {
        let filter = Filter { state: "READY".to_owned(), page: String::new() };
        assert_eq!(filter.state(), State::Ready);
        let shown = render(&[], &filter, "t").0;
        assert!(
            shown.contains("<option value=\"READY\" selected>") && shown.contains("state=READY&amp;page=t")
        );
        assert_eq!(Filter { state: HOSTILE.to_owned(), page: String::new() }.state(), State::Unspecified);
    }
}
