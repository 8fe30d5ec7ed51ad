//! The output of a process of a run.

use maud::{Markup, html};
use wire::v1::{Process, ProcessStream};

use super::super::elements::{Part, facts, part, state};
use super::super::{figures, foreign};
use super::show::command;

/// Bytes of each stream that are shown: the last that were kept.
pub(crate) const BYTES: usize = 128 * 1024;

/// The end of what a process has written.
#[derive(Debug, Default)]
pub(crate) struct Output {
    pub(crate) process: Process,
    pub(crate) stdout: Tail,
    pub(crate) stderr: Tail,
}

/// The end of a stream.
#[derive(Debug, Default)]
pub(crate) struct Tail {
    bytes: Vec<u8>,
    left_out: u64,
}

impl Tail {
    /// Adds bytes, and drops the first ones beyond the bound.
    pub(crate) fn push(&mut self, data: &[u8]) {
        self.bytes.extend_from_slice(data);
        let over = self.bytes.len().saturating_sub(BYTES);
        self.bytes.drain(..over);
        self.left_out += over as u64;
    }

    /// Counts bytes that the daemon did not keep.
    pub(crate) fn skip(&mut self, bytes: u64) {
        self.left_out += bytes;
    }
}

impl Output {
    /// Returns one of the streams.
    pub(crate) fn tail(&mut self, stream: ProcessStream) -> &mut Tail {
        match stream {
            ProcessStream::Stderr => &mut self.stderr,
            ProcessStream::Stdout | ProcessStream::Unspecified => &mut self.stdout,
        }
    }
}

pub(crate) fn render(run: &str, output: &Part<Output>) -> Markup {
    html! {
        (super::head(run, "run"))
        h2 { "Process" }
        (part(output, shown))
    }
}

fn shown(output: &Output) -> Markup {
    let process = &output.process;
    html! {
        p { (state(&figures::word(process.state().as_str_name()))) }
        (facts([
            ("Command", Some(foreign::line(&command(process)))),
            ("Started", Some(figures::moment(process.started_at.as_ref()))),
            ("Ended", Some(figures::moment(process.ended_at.as_ref()))),
            ("Exit code", process.exit_code.map(|code| html! { (code) })),
            ("Failure", (!process.failure.is_empty()).then(|| foreign::line(&process.failure))),
        ]))
        (stream("Output", &output.stdout))
        (stream("Errors", &output.stderr))
    }
}

fn stream(name: &str, tail: &Tail) -> Markup {
    html! {
        h3 { (name) }
        @if tail.left_out > 0 { p.note { (tail.left_out) " bytes before or between are not shown." } }
        @if tail.bytes.is_empty() { p { "None." } } @else { (foreign::bytes(&tail.bytes)) }
    }
}

#[cfg(test)]
mod tests {
    use wire::v1::ProcessRequest;

    use super::super::super::foreign::tests::{HOSTILE, assert_harmless};
    use super::*;

    #[test]
    fn output_is_harmless() {
        let mut output = Output {
            process: Process {
                request: Some(ProcessRequest { script: HOSTILE.to_owned(), ..Default::default() }),
                failure: HOSTILE.to_owned(),
                ..Default::default()
            },
            ..Default::default()
        };
        output.tail(ProcessStream::Stdout).push(HOSTILE.as_bytes());
        output.tail(ProcessStream::Stderr).push(HOSTILE.as_bytes());
        assert_harmless(&render(HOSTILE, &Ok(output)));
        assert_harmless(&render(HOSTILE, &Err(HOSTILE.to_owned())));
    }

    #[test]
    fn the_end_of_a_flood_is_kept_and_the_rest_counted() {
        let mut tail = Tail::default();
        tail.skip(5);
        for _ in 0..3 {
            tail.push(&vec![b'x'; BYTES]);
        }
        tail.push(b"end");
        assert_eq!((tail.bytes.len(), tail.left_out), (BYTES, 5 + 2 * BYTES as u64 + 3));
        assert!(tail.bytes.ends_with(b"end"));
    }
}
