//! Prints the outcome of a call: its result to standard output, the rest to standard error. Also determines the exit code.

use wire::v1::call_response::Status;
use wire::v1::result::Kind as CallResult;
use wire::v1::{CallResponse, ToolFailure};

use super::{checkpoint, delete, edit, exec_result, git, glob, grep, list, mcp, patch, read, write};
use crate::exit::Exit;
use crate::failure::Ended;
use crate::output::{Output, Style};
use crate::ui::Ui;

/// Prints a call and returns the exit code of `coffer`.
pub(super) fn show(ui: Ui, call: &CallResponse) -> Ended {
    ui.answer_and_talk(call, render)?;
    Ok(exit(call))
}

/// Prints a call in the form that the model sees.
pub(super) fn show_rendered(ui: Ui, call: &CallResponse) -> Ended {
    if ui.is_structured() || call.rendered.is_empty() {
        return show(ui, call);
    }
    ui.answer_and_talk(call, |call, data, talk| {
        data.raw(&call.rendered).end_line();
        status(call, talk);
    })?;
    Ok(exit(call))
}

/// Returns the exit code of `coffer`.
pub(super) fn exit(call: &CallResponse) -> Exit {
    if let Some(exit) = exec_result::exit(call.kind()) {
        return exit;
    }
    // A file that is not text was not printed. A script must not mistake it for an empty file.
    if let Some(CallResult::Read(read)) = call.kind()
        && read.binary
        && read.content.is_empty()
    {
        return Exit::Failed;
    }
    // Shells have a special exit code for a program that cannot be run.
    let code = call.error.as_ref().and_then(|failure| failure.details.get("exit_code"));
    if let Some(code) = code.and_then(|code| code.parse().ok()) {
        return Exit::Command(code);
    }
    match call.status() {
        Status::Succeeded | Status::Running => Exit::Ok,
        Status::Failed | Status::Unspecified => Exit::Failed,
        Status::PendingApproval => Exit::AwaitingApproval,
        Status::Denied => Exit::Denied,
    }
}

fn render(call: &CallResponse, data: &mut Output, talk: &mut Output) {
    match call.kind() {
        Some(CallResult::Read(result)) => read::render(result, data, talk),
        Some(CallResult::List(result)) => list::render(result, data, talk),
        Some(CallResult::Glob(result)) => glob::render(result, data, talk),
        Some(CallResult::Grep(result)) => grep::render(result, data, talk),
        Some(CallResult::Exec(result) | CallResult::Shell(result)) => exec_result::render(result, data, talk),
        Some(CallResult::Write(result)) => write::render(result, data),
        Some(CallResult::Edit(result)) => edit::render(result, data, talk),
        Some(CallResult::Patch(result)) => patch::render(result, data, talk),
        Some(CallResult::Delete(result)) => delete::render(result, data),
        Some(CallResult::Git(result)) => git::render(result, data, talk),
        Some(CallResult::Mcp(result)) => mcp::render(result, data, talk),
        Some(CallResult::Process(result)) => {
            data.word(&result.process_id).end_line();
        }
        Some(CallResult::Checkpoint(result)) => checkpoint::render(result, data, talk),
        Some(CallResult::Session(result)) => {
            data.raw(&result.output);
        }
        None => {}
    }
    status(call, talk);
}

/// Prints the status of a call after its result.
pub(super) fn status(call: &CallResponse, talk: &mut Output) {
    match call.status() {
        Status::Succeeded => {}
        Status::Failed => error(talk, "failed", call.error.as_ref()),
        Status::Denied => error(talk, "denied", call.error.as_ref()),
        Status::Running => {
            talk.own("running: look again with `coffer call show ").word(&call.call_id).own("`\n");
        }
        Status::PendingApproval => pending(call, talk),
        Status::Unspecified => {
            talk.styled(Style::Red, "failed")
                .own(": the daemon gave a status that this version of coffer does not know\n");
        }
    }
}

fn error(talk: &mut Output, what: &'static str, failure: Option<&ToolFailure>) {
    talk.end_line().styled(Style::Red, what);
    let Some(failure) = failure else {
        talk.own("\n");
        return;
    };
    talk.own(": ").block(&failure.message).own(" (").word(&failure.reason).own(")\n");
    let mut details: Vec<_> = failure.details.iter().collect();
    details.sort_unstable();
    for (name, value) in details {
        talk.own("  ").word(name).own(": ").word(value).own("\n");
    }
}

fn pending(call: &CallResponse, talk: &mut Output) {
    let id = &call.approval_id;
    talk.styled(Style::Yellow, "awaiting approval").own(" ").word(id).own("\n");
    talk.own("see it with:     coffer approval show ").word(id).own("\n");
    talk.own("approve it with: coffer approval approve ").word(id).own("\n");
    talk.own("who may do that: another user with the role approver; also you if approvals.allow_self_approval is true,\n");
    talk.own("                 as with `coffer up`\n");
    talk.own("its outcome:     coffer call show ").word(&call.call_id).own("\n");
}

#[cfg(test)]
mod tests {
    use wire::v1::{ExecResult, ReadResult};

    use super::*;
    use crate::output::Look;

    fn pages(call: &CallResponse) -> (String, String) {
        let (mut data, mut talk) = (Output::new(Look::PIPE), Output::new(Look::PIPE));
        render(call, &mut data, &mut talk);
        (data.as_str().into(), talk.as_str().into())
    }

    fn call(status: Status) -> CallResponse {
        CallResponse { call_id: "c".into(), status: status.into(), ..Default::default() }
    }

    #[test]
    fn a_pending_call_shows_the_next_step() {
        let call = CallResponse { approval_id: "a".into(), ..call(Status::PendingApproval) };
        assert_eq!(exit(&call), Exit::AwaitingApproval);
        assert_eq!(
            pages(&call),
            (
                String::new(),
                "awaiting approval a\n\
                 see it with:     coffer approval show a\n\
                 approve it with: coffer approval approve a\n\
                 who may do that: another user with the role approver; also you if approvals.allow_self_approval is true,\n\
                 \u{20}                as with `coffer up`\n\
                 its outcome:     coffer call show c\n"
                    .into()
            )
        );
    }

    #[test]
    fn refusals_and_failures_name_their_reason() {
        let error = ToolFailure {
            reason: "NOT_FOUND".into(),
            message: "no file\x1b[2J `a`".into(),
            details: [("lines".into(), "3, 9".into()), ("b".into(), "x\ny".into())].into(),
            ..ToolFailure::default()
        };
        let failed = CallResponse { error: Some(error.clone()), ..call(Status::Failed) };
        assert_eq!(exit(&failed), Exit::Failed);
        assert_eq!(pages(&failed).1, "failed: no file␛[2J `a` (NOT_FOUND)\n  b: x␊y\n  lines: 3, 9\n");
        let denied = CallResponse { error: Some(error), ..call(Status::Denied) };
        assert_eq!(exit(&denied), Exit::Denied);
        assert!(pages(&denied).1.starts_with("denied: "));
    }

    #[test]
    fn the_exit_code_follows_the_command() {
        let exec = |exit_code| CallResponse {
            result: Some(CallResult::Exec(ExecResult { exit_code, ..Default::default() }).into()),
            ..call(Status::Succeeded)
        };
        assert_eq!(exit(&exec(Some(0))), Exit::Ok);
        assert_eq!(exit(&exec(Some(3))), Exit::Command(3));
        assert_eq!(exit(&exec(Some(137))), Exit::Command(137));
        let late = ExecResult { timed_out: true, exit_code: Some(0), ..Default::default() };
        let late = CallResponse { result: Some(CallResult::Exec(late).into()), ..call(Status::Failed) };
        assert_eq!(exit(&late), Exit::Command(124));
        let unknown = CallResponse { result: exec(None).result, ..call(Status::Failed) };
        assert_eq!(exit(&unknown), Exit::Failed);
        let script = ExecResult { exit_code: Some(3), ..Default::default() };
        let shell =
            CallResponse { result: Some(CallResult::Shell(script).into()), ..call(Status::Succeeded) };
        assert_eq!(exit(&shell), Exit::Command(3));
        assert_eq!(exit(&call(Status::Unspecified)), Exit::Failed);
    }

    #[test]
    fn a_good_call_is_only_data() {
        let read = CallResponse {
            result: Some(
                CallResult::Read(ReadResult { content: "hi\n".into(), ..Default::default() }).into(),
            ),
            ..call(Status::Succeeded)
        };
        assert_eq!(exit(&read), Exit::Ok);
        assert_eq!(pages(&read), ("hi\n".into(), String::new()));
    }
}
