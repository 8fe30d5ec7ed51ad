//! Prints the result of a command or a script, with its output or after it.

use wire::v1::ExecResult;
use wire::v1::result::Kind as CallResult;

use crate::exit::{Exit, TIMED_OUT};
use crate::output::{Output, Style};
use crate::quantity::{bytes, count};

/// Returns the exit code for a command or a script that did not succeed.
pub(super) fn exit(result: Option<&CallResult>) -> Option<Exit> {
    let Some(CallResult::Exec(result) | CallResult::Shell(result)) = result else { return None };
    match (result.timed_out, result.exit_code) {
        (true, _) => Some(Exit::Command(TIMED_OUT)),
        (false, Some(0) | None) => None,
        (false, Some(code)) => Some(u8::try_from(code).map_or(Exit::Failed, Exit::Command)),
    }
}

pub(super) fn render(result: &ExecResult, data: &mut Output, talk: &mut Output) {
    data.raw(&result.stdout);
    talk.raw(&result.stderr);
    for (name, omitted) in
        [("standard output", result.stdout_omitted_bytes), ("standard error", result.stderr_omitted_bytes)]
    {
        if omitted > 0 {
            talk.end_line().styled(Style::Yellow, "cut short").own(": ").word(&bytes(omitted));
            talk.own(" of ").word(name).own(" left out of the middle\n");
        }
    }
    end(result, talk);
}

/// Returns true if a part of a command's streamed output is missing. `shown` is the number of bytes of each stream.
pub(super) fn lacks(result: &ExecResult, shown: [u64; 2]) -> bool {
    result.stdout_bytes > shown[0] || result.stderr_bytes > shown[1]
}

/// Prints the end of a command whose output was streamed. `shown` is the number of bytes of each stream.
pub(super) fn render_end(result: &ExecResult, shown: [u64; 2], talk: &mut Output) {
    let written = [("standard output", result.stdout_bytes), ("standard error", result.stderr_bytes)];
    for ((name, written), shown) in written.into_iter().zip(shown) {
        if written > shown {
            talk.end_line().styled(Style::Yellow, "cut short").own(": ").word(&bytes(written - shown));
            talk.own(" of ").word(name).own(" was lost\n");
        }
    }
    end(result, talk);
}

fn end(result: &ExecResult, talk: &mut Output) {
    if let Some(kill) = result.kill.as_ref().filter(|kill| kill.ended > 0 || kill.left > 0) {
        talk.end_line().word(&count(kill.ended.into(), "process", "processes"));
        let took = kill.took_us.div_ceil(1_000).to_string();
        talk.own(" that it left running ended in ").word(&took).own(" ms");
        if kill.left > 0 {
            talk.own(", ").styled(Style::Red, &kill.left.to_string()).own(" still running");
        }
        talk.own("\n");
    }
    if let Some(running) = result.kill.as_ref().map(|kill| kill.running).filter(|running| *running > 0) {
        talk.end_line().word(&count(running.into(), "process", "processes"));
        talk.own(" that it left running goes on: see `coffer process list`\n");
    }
    if !result.hint.is_empty() {
        talk.end_line().styled(Style::Yellow, "limits").own(": ").word(&result.hint).own("\n");
    }
    let end = match (result.timed_out, result.exit_code, result.signal) {
        (true, ..) => "the timeout ended the command".into(),
        (false, _, Some(signal)) => {
            let by = result.ended_by().word().map_or_else(String::new, |by| format!(" ({by})"));
            format!("signal {signal} ended the command{by}")
        }
        (false, Some(0), _) => return,
        (false, Some(code), _) => format!("the command ended with exit code {code}"),
        (false, None, None) => "the command ended without an exit code".into(),
    };
    talk.end_line().styled(Style::Red, "failed").own(": ").word(&end).own("\n");
}

#[cfg(test)]
mod tests {
    use wire::v1::KillEvidence;
    use wire::v1::exec_result::EndedBy;
    use wire::v1::kill_evidence::Method;

    use super::*;
    use crate::output::Look;

    fn pages(result: &ExecResult) -> (String, String) {
        let (mut data, mut talk) = (Output::new(Look::PIPE), Output::new(Look::PIPE));
        render(result, &mut data, &mut talk);
        (data.as_str().into(), talk.as_str().into())
    }

    #[test]
    fn each_stream_goes_to_its_own_output() {
        let result = ExecResult {
            stdout: "out".into(),
            stderr: "err".into(),
            exit_code: Some(3),
            stderr_omitted_bytes: 2048,
            kill: Some(KillEvidence {
                ended: 2,
                left: 0,
                method: Method::CgroupV2Kill.into(),
                took_us: 12_345,
                running: 0,
            }),
            ..Default::default()
        };
        assert_eq!(
            pages(&result),
            (
                "out".into(),
                "err\ncut short: 2.0 KiB of standard error left out of the middle\n\
                 2 processes that it left running ended in 13 ms\nfailed: the command ended with exit code 3\n"
                    .into()
            )
        );
    }

    #[test]
    fn streamed_output_is_not_shown_again() {
        let result = ExecResult {
            stdout: "out".into(),
            stdout_bytes: 3,
            stderr_bytes: 2048,
            stdout_omitted_bytes: 1,
            exit_code: Some(1),
            ..Default::default()
        };
        let talk = |shown| {
            let mut talk = Output::new(Look::PIPE);
            render_end(&result, shown, &mut talk);
            talk.as_str().to_owned()
        };
        assert_eq!(talk([3, 2048]), "failed: the command ended with exit code 1\n");
        assert!(talk([3, 1024]).starts_with("cut short: 1.0 KiB of standard error was lost\n"));
        assert!(!lacks(&result, [3, 2048]) && lacks(&result, [3, 1024]));
    }

    #[test]
    fn every_end_has_its_words() {
        let talk = |result: ExecResult| pages(&result).1;
        assert_eq!(talk(ExecResult { exit_code: Some(0), ..Default::default() }), "");
        assert!(talk(ExecResult { signal: Some(9), ..Default::default() }).contains("signal 9"));
        let hog = ExecResult {
            signal: Some(9),
            ended_by: EndedBy::MemoryLimit.into(),
            hint: "the run was out of memory".into(),
            ..Default::default()
        };
        let expected =
            "limits: the run was out of memory\nfailed: signal 9 ended the command (memory-limit)\n";
        assert_eq!(talk(hog), expected);
        assert!(
            talk(ExecResult { timed_out: true, signal: Some(9), ..Default::default() }).contains("timeout")
        );
        assert!(talk(ExecResult::default()).contains("without an exit code"));
    }
}
