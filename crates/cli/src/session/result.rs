//! Prints the results of sessions, and determines their exit codes.

use wire::v1::SessionResult;
use wire::v1::exec_result::EndedBy;
use wire::v1::session_result::State;

use crate::exit::{Exit, TIMED_OUT};
use crate::output::Output;

/// Prints the output, and a note about an unusual state.
pub(super) fn render(result: &SessionResult, data: &mut Output, talk: &mut Output) {
    data.raw(&result.output);
    match result.state() {
        State::Done | State::Unspecified => {}
        State::Matched => {
            data.raw(&result.matched_text);
        }
        State::Running => {
            talk.own("the command still runs: wait for it with `coffer session run`, or interrupt it\n");
        }
        State::Ended => match result.ended_by().word() {
            Some(by) => {
                talk.own("the session was ended: ").word(&by).own("\n");
            }
            None => {
                talk.own("the session has ended\n");
            }
        },
        State::Unanswered => {
            talk.own("the shell no longer answers: close the session\n");
        }
    }
}

/// Returns the exit code of `coffer`, which is the command's.
pub(super) fn exit(result: &SessionResult) -> Exit {
    let code = result.exit_code.and_then(|code| u8::try_from(code).ok());
    match (result.state(), code) {
        (State::Running, _) => Exit::Command(TIMED_OUT),
        (State::Unanswered | State::Unspecified, _) | (State::Ended, None) => Exit::Command(125),
        // Cut short, it has not done its work.
        (State::Ended, Some(0)) if result.ended_by() != EndedBy::Unspecified => Exit::Command(125),
        (_, Some(0)) | (State::Done | State::Matched, None) => Exit::Ok,
        (_, Some(code)) => Exit::Command(code),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_s_exit_code_is_passed_through() {
        let of = |state: State, exit_code| {
            exit(&SessionResult { state: state.into(), exit_code, ..Default::default() })
        };
        assert_eq!(of(State::Done, Some(0)), Exit::Ok);
        assert_eq!(of(State::Done, Some(17)), Exit::Command(17));
        assert_eq!(of(State::Ended, Some(3)), Exit::Command(3));
        assert_eq!(of(State::Matched, None), Exit::Ok);
        assert_eq!(of(State::Running, None), Exit::Command(124));
        assert_eq!(of(State::Unanswered, None), Exit::Command(125));
        assert_eq!(of(State::Ended, None), Exit::Command(125));
    }
}
