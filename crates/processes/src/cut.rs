//! Cuts the request that is kept after the start.
//!
//! A profile may allow 2 MiB of arguments, a run has 320 processes, and one answer lists all of them.

use std::collections::BTreeMap;

use wire::v1;

/// Most bytes of a command, its arguments and its script together.
const MOST: usize = 4 << 10;
/// Bytes of an argument's frame in a message.
const FRAME: usize = 3;

/// Returns the request as clients see it, without its environment, and true if a part of it is missing.
pub(crate) fn cut(request: &v1::ProcessRequest) -> (v1::ProcessRequest, bool) {
    let mut rest = Rest { bytes: MOST, is_cut: false };
    let (command, script) = (rest.take(&request.command), rest.take(&request.script));
    let mut args = Vec::new();
    for arg in &request.args {
        if rest.bytes <= FRAME {
            rest.is_cut = true;
            break;
        }
        rest.bytes -= FRAME;
        args.push(rest.take(arg));
    }
    let shown = v1::ProcessRequest {
        command,
        args,
        script,
        cwd: request.cwd.clone(),
        env: BTreeMap::new(),
        stdin: request.stdin,
        terminal: request.terminal,
        tag: request.tag.clone(),
        timeout_ms: request.timeout_ms,
        session: request.session,
    };
    (shown, rest.is_cut)
}

/// The number of bytes that may still be kept.
struct Rest {
    bytes: usize,
    is_cut: bool,
}

impl Rest {
    fn take(&mut self, text: &str) -> String {
        let mut end = self.bytes.min(text.len());
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.is_cut |= end < text.len();
        self.bytes -= end;
        text[..end].to_owned()
    }
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;

    fn request(command: &str, args: &[&str]) -> v1::ProcessRequest {
        let args = args.iter().map(ToString::to_string).collect();
        v1::ProcessRequest { command: command.into(), args, tag: "web".into(), ..Default::default() }
    }

    #[test]
    fn a_usual_request_is_whole_but_for_its_environment() {
        let asked = v1::ProcessRequest {
            env: [("TOKEN".to_owned(), "canary".to_owned())].into(),
            cwd: "src".into(),
            timeout_ms: Some(7),
            ..request("node", &["", "server.js"])
        };
        let shown = v1::ProcessRequest { env: BTreeMap::new(), ..asked.clone() };
        assert_eq!(cut(&asked), (shown, false));
        let script = v1::ProcessRequest { script: "x".repeat(MOST), ..Default::default() };
        assert_eq!(cut(&script), (script.clone(), false));
    }

    #[test]
    fn long_requests_are_cut_between_characters() {
        let long = "ä".repeat(MOST);
        for (asked, kept) in [
            (request(&long, &["a"]), MOST),
            (request("a", &[&long]), MOST - FRAME),
            (request("ab", &["x", &long, "y"]), MOST - 2 * FRAME),
            (v1::ProcessRequest { script: long.clone(), ..Default::default() }, MOST),
        ] {
            let (shown, is_cut) = cut(&asked);
            let bytes = shown.command.len() + shown.script.len() + shown.args.concat().len();
            assert!(is_cut && (kept - 1..=kept).contains(&bytes), "{bytes} of {kept}");
            assert_eq!((shown.tag, shown.args.len() <= 2), (asked.tag, true));
        }
    }

    #[test]
    fn empty_arguments_are_also_bounded() {
        for arg in ["", "x"] {
            let (shown, is_cut) = cut(&request("true", &vec![arg; 65_536]));
            assert!(is_cut && shown.encoded_len() < MOST + 100, "{}", shown.encoded_len());
        }
    }
}
