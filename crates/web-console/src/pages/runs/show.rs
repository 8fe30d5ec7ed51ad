//! The page of a run: its state, what it uses, what runs in it, and what holds it.

use std::fmt::Write as _;

use maud::{Markup, html};
use wire::v1::run::{Changes, ColdBecause, EndCause, State};
use wire::v1::workspace::Source;
use wire::v1::{
    DiskUse, GetRateLimitsResponse, Limits, ModelUse, Process, RateLimit, Run, RunHold, Session,
    companion_status, disk_use, process, session,
};

use super::super::elements::{Part, address, facts, id_path, part, run_link, state, table};
use super::super::{figures, foreign};
use super::{lineage, list};

/// Answers that the page is made of.
pub(crate) struct Shown {
    pub(crate) run: Run,
    /// The newest runs, for the tree of forks.
    pub(crate) family: Vec<Run>,
    pub(crate) processes: Part<Vec<Process>>,
    pub(crate) sessions: Part<Vec<Session>>,
    pub(crate) limits: Part<GetRateLimitsResponse>,
}

/// Returns the page. `hidden` is the hidden part of forms, if the viewer may pause and stop runs.
pub(crate) fn render(shown: &Shown, hidden: Option<&Markup>) -> Markup {
    html! {
        (super::head(&shown.run.run_id, "run"))
        div #run data-live { (details(shown, hidden)) }
    }
}

fn details(shown: &Shown, hidden: Option<&Markup>) -> Markup {
    let run = &shown.run;
    html! {
        p { (state(&figures::word(run.state().as_str_name()))) @if !run.failure.is_empty() { " " (foreign::line(&run.failure)) } }
        @if let Some(hidden) = hidden { (actions(run, hidden)) }
        @if !run.holds.is_empty() { (holds(&run.holds)) }
        (facts([
            ("Agent", Some(foreign::line(&run.agent_id))),
            ("Role", Some(foreign::line(&run.role))),
            ("Profile", Some(html! {
                a href=(address("/policy", &[("profile", &run.profile)])) { (foreign::heading(&run.profile)) }
            })),
            ("Made by", Some(foreign::line(&run.principal))),
            ("Workspace", Some(foreign::line(&workspace(run)))),
            ("Changes", changes(run).map(|words| html! { (words) })),
            ("Image", Some(foreign::line(&run.image))),
            ("Image id", Some(foreign::line(&run.image_id))),
            ("Container", some(&run.container_id)),
            ("Begun on", run.forked_from.as_ref().map(|from| html! {
                "a checkpoint of run " (run_link(&from.run_id))
            })),
            ("Created", Some(figures::moment(run.created_at.as_ref()))),
            ("Ready", Some(html! { (figures::moment(run.ready_at.as_ref())) " " (start(run)) })),
            ("Reattached", run.adopted_at.is_some().then(|| html! {
                (figures::moment(run.adopted_at.as_ref())) ", after " (run.restarts) " restarts of the daemon"
            })),
            ("Ended", run.ended_at.is_some().then(|| html! { (figures::moment(run.ended_at.as_ref())) " " (cause(run)) })),
            ("Ends after", run.ttl.as_ref().map(|ttl| html! { (figures::wire_duration(Some(ttl))) })),
            ("Idle limit", run.idle_timeout.as_ref().map(|idle| html! { (figures::wire_duration(Some(idle))) })),
            ("Lease ends", run.lease_ends_at.as_ref().map(|at| figures::moment(Some(at)))),
            ("Labels", (!run.labels.is_empty()).then(|| list::labels(run))),
        ]))
        h2 { "Use" }
        (facts([
            ("On disk", run.disk.as_ref().map(disk)),
            ("Limits", run.limits.as_ref().map(limits)),
            ("Connections", run.egress.as_ref().map(|egress| html! {
                (egress.open_connections) " open, " (egress.ended_connections) " ended, "
                (egress.refused_connections + egress.refused_names) " refused; "
                (figures::size(egress.bytes_out)) " out, " (figures::size(egress.bytes_in)) " in"
            })),
        ]))
        @if let Some(models) = &run.model_use { (model_use(models)) }
        (part(&shown.limits, rate_limits))
        h2 { "Processes" }
        (part(&shown.processes, |processes| processes_of(&run.run_id, processes)))
        h2 { "Sessions" }
        (part(&shown.sessions, |sessions| sessions_of(&run.run_id, sessions)))
        @if !run.companions.is_empty() { h2 { "Companions" } (companions(run)) }
        @if let Some(tree) = lineage::render(&shown.family, &run.run_id) { h2 { "Forks" } (tree) }
        @if !run.hardening.is_empty() {
            h2 { "Hardening in force" }
            (table("Hardening, as the engine reports it", &["Property", "Value"], run.hardening.iter().map(|fact| vec![
                foreign::line(&fact.name), foreign::line(&fact.value),
            ])))
        }
    }
}

fn some(text: &str) -> Option<Markup> {
    (!text.is_empty()).then(|| foreign::line(text))
}

/// Returns the forms by which the viewer pauses, resumes and stops the run.
fn actions(run: &Run, hidden: &Markup) -> Markup {
    let path = |action: &str| id_path("/runs/", &run.run_id, action);
    let lives = matches!(run.state(), State::Ready | State::Paused);
    html! {
        @if let (true, Some(pause), Some(resume), Some(stop)) = (lives, path("/pause"), path("/resume"), path("/stop")) {
            div.actions {
                @if run.state() == State::Ready {
                    form method="post" action=(pause) { (hidden) button type="submit" { "Pause" } }
                } @else {
                    form method="post" action=(resume) { (hidden) button type="submit" { "Resume" } }
                }
                a.button href=(stop) { "Stop…" }
            }
        }
    }
}

/// Returns the page that asks before a run is stopped.
pub(crate) fn confirm_stop(id: &str, hidden: &Markup) -> Markup {
    html! {
        h1 { "Stop run " (foreign::heading(id)) "?" }
        p { "Its calls are cancelled, its processes killed and its container removed. Its workspace stays." }
        @if let (Some(stop), Some(back)) = (id_path("/runs/", id, "/stop"), id_path("/runs/", id, "")) {
            form.actions method="post" action=(stop) {
                (hidden)
                button.danger type="submit" { "Stop the run" }
                a.button href=(back) { "Back" }
            }
        }
    }
}

fn holds(holds: &[RunHold]) -> Markup {
    let rows = holds.iter().map(|hold| {
        let by = if hold.principal.is_empty() {
            html! { "the daemon" }
        } else {
            foreign::line(&hold.principal)
        };
        vec![
            html! { (figures::word(hold.kind().as_str_name())) },
            by,
            figures::moment(hold.since.as_ref()),
            foreign::line(&hold.cause_id),
        ]
    });
    table("Reasons for which it is paused", &["Reason", "By", "Since", "Id"], rows)
}

fn workspace(run: &Run) -> String {
    match run.workspace.as_ref().and_then(|workspace| workspace.source.as_ref()) {
        Some(Source::Bind(bind)) => format!("directory {}", bind.path),
        Some(Source::Managed(managed)) if managed.workspace_id.is_empty() => "managed".to_owned(),
        Some(Source::Managed(managed)) => format!("managed, of run {}", managed.workspace_id),
        Some(Source::Overlay(overlay)) => format!("overlay on {}", overlay.path),
        Some(Source::Base(base)) => format!("base {}", base.base_id),
        Some(Source::Checkpoint(checkpoint)) => format!("checkpoint {}", checkpoint.checkpoint_id),
        Some(Source::Clone(clone)) => {
            format!("clone of {}{} {}", clone.repository, clone.url, clone.revision)
        }
        None => "–".to_owned(),
    }
}

fn changes(run: &Run) -> Option<&'static str> {
    match run.changes() {
        Changes::Unspecified => None,
        Changes::Pending => Some("neither accepted nor discarded"),
        Changes::Accepted => Some("accepted"),
        Changes::Discarded => Some("discarded"),
    }
}

fn start(run: &Run) -> String {
    match run.cold_because() {
        ColdBecause::Unspecified => {
            figures::word(run.start_kind().as_str_name()).replace("start kind unspecified", "")
        }
        why => format!("cold: {}", figures::word(why.as_str_name())),
    }
}

fn cause(run: &Run) -> &'static str {
    match run.end_cause() {
        EndCause::Unspecified => "",
        EndCause::Ttl => "as its ttl was reached",
        EndCause::IdleTimeout => "as it was idle",
        EndCause::Lease => "as its lease was not renewed",
        EndCause::NodeDrained => "as its node was drained",
    }
}

fn disk(disk: &DiskUse) -> Markup {
    html! {
        @if disk.at_least { "more than " }
        (figures::size(disk.used_bytes)) " in " (disk.used_files) " files "
        @if disk.state() != disk_use::State::Unspecified { (state(&figures::word(disk.state().as_str_name()))) }
    }
}

fn limits(limits: &Limits) -> Markup {
    html! {
        "memory " (figures::size(limits.memory_bytes)) ", "
        (limits.cpu_millis / 1000) "." (format!("{:03}", limits.cpu_millis % 1000)) " processors, "
        (limits.pids) " processes, disk " (figures::size(limits.disk_bytes))
    }
}

fn model_use(models: &ModelUse) -> Markup {
    let total = models.total.unwrap_or_default();
    let bounds = models.bounds.iter().map(|bound| {
        vec![
            html! { (figures::word(bound.scope().as_str_name())) },
            html! { (figures::word(bound.unit().as_str_name())) },
            html! { (bound.used) " of " (bound.limit) },
            figures::moment(bound.renews_at.as_ref()),
        ]
    });
    html! {
        h3 { "Models" }
        (facts([
            ("Requests", Some(html! { (total.requests) })),
            ("Tokens", Some(html! {
                (total.input_tokens) " in, " (total.output_tokens) " out, " (total.cached_input_tokens) " from a cache, "
                (total.cache_write_tokens) " into a cache"
            })),
            ("Cost", Some(html! { (total.cost_micro_usd / 1_000_000) "." (format!("{:06}", total.cost_micro_usd % 1_000_000)) " USD" })),
        ]))
        @if !models.bounds.is_empty() { (table("Budget", &["Of", "Unit", "Used", "Renewed"], bounds)) }
    }
}

fn rate_limits(answer: &GetRateLimitsResponse) -> Markup {
    let rows = answer.limits.iter().filter(|limit| !limit.windows.is_empty()).map(|limit| {
        vec![
            html! { (figures::word(limit.scope().as_str_name())) },
            foreign::line(&limit.name),
            windows(limit),
        ]
    });
    html! {
        h3 { "Calls" }
        (table("Calls by limit", &["Of", "Name", "Used"], rows))
        @for running in answer.concurrency.iter().filter(|running| running.scope == "run") {
            p { (running.running) " run now of at most " (running.limit) ", " (running.waiting) " wait." }
        }
    }
}

fn windows(limit: &RateLimit) -> Markup {
    html! {
        @for window in &limit.windows {
            span.item {
                (window.used) @if let Some(most) = window.limit { " of " (most) } " in "
                (figures::wire_duration(window.length.as_ref()))
            }
            " "
        }
    }
}

fn processes_of(run: &str, processes: &[Process]) -> Markup {
    // Sessions are processes, too, and shown as such.
    let is_session = |process: &&Process| process.request.as_ref().is_some_and(|request| request.session);
    let rows: Vec<_> = processes
        .iter()
        .filter(|process| !is_session(process))
        .map(|process| process_row(run, process))
        .collect();
    if rows.is_empty() {
        return html! { p { "None." } };
    }
    table(
        "Processes, oldest first",
        &["Process", "State", "Command", "Started", "Ended", "Output", "Processor", "Memory"],
        rows,
    )
}

fn process_row(run: &str, process: &Process) -> Vec<Markup> {
    let path = id_path("/runs/", run, "/processes/").and_then(|path| id_path(&path, &process.process_id, ""));
    vec![
        html! {
            @match &path {
                Some(path) => a href=(path) title=(process.process_id) { code { (&process.process_id[28..]) } },
                None => (foreign::line(&process.process_id)),
            }
        },
        html! {
            (state(&figures::word(process.state().as_str_name())))
            @if process.state() != process::State::Running {
                @if let Some(code) = process.exit_code { " code " (code) }
                @if !process.failure.is_empty() { " " (foreign::line(&process.failure)) }
            }
        },
        foreign::line(&command(process)),
        figures::moment(process.started_at.as_ref()),
        figures::moment(process.ended_at.as_ref()),
        html! { (figures::size(process.stdout_bytes + process.stderr_bytes)) },
        html! { @if process.cpu_time_us > 0 { (figures::micros(process.cpu_time_us)) } },
        html! { @if process.peak_memory_bytes > 0 { (figures::size(process.peak_memory_bytes)) } },
    ]
}

/// Returns the words of a process's command.
pub(super) fn command(process: &Process) -> String {
    let Some(request) = &process.request else { return String::new() };
    let mut words = request.command.clone() + &request.script;
    for arg in &request.args {
        words.push(' ');
        words.push_str(arg);
    }
    words
}

fn sessions_of(run: &str, sessions: &[Session]) -> Markup {
    if sessions.is_empty() {
        return html! { p { "None." } };
    }
    let rows = sessions.iter().map(|session| {
        let process = session.process.clone().unwrap_or_default();
        let mut row = process_row(run, &Process { process_id: session.session_id.clone(), ..process });
        row[1] = match session.state() {
            session::State::Unspecified => state("not known"),
            known => state(&figures::word(known.as_str_name())),
        };
        row.remove(2);
        row
    });
    table(
        "Sessions, oldest first",
        &["Session", "State", "Started", "Ended", "Output", "Processor", "Memory"],
        rows,
    )
}

fn companions(run: &Run) -> Markup {
    let rows = run.companions.iter().map(|companion| {
        let mut words = figures::word(companion.state().as_str_name());
        if companion.state() == companion_status::State::Exited {
            let _ = write!(words, " with {}", companion.exit_code);
        }
        let ports: Vec<String> = companion.ports.iter().map(u32::to_string).collect();
        vec![
            foreign::line(&companion.name),
            state(&words),
            foreign::line(&companion.image),
            html! { (ports.join(" ")) },
            foreign::line(&companion.address),
        ]
    });
    table("Containers beside the run", &["Name", "State", "Image", "Ports", "Address"], rows)
}

#[cfg(test)]
#[path = "show_tests.rs"]
mod tests;
