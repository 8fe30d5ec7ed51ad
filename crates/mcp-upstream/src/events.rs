//! Server-sent events: the data of each, bounded. Names, ids and retry times are ignored, because streams are not resumed.

use super::fault::Fault;
use super::lines::Lines;
use super::message::MAX_MESSAGE;

/// Event that is not complete yet.
#[derive(Debug, Default)]
pub(super) struct Events {
    lines: Lines,
    /// Lines of its data, each with a line break.
    data: String,
}

impl Events {
    /// Consumes bytes, and passes on the data of each event that they complete.
    pub(super) fn take(
        &mut self,
        bytes: &[u8],
        mut each: impl FnMut(String) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let data = &mut self.data;
        self.lines.take(bytes, |line| {
            if line.is_empty() {
                let mut event = std::mem::take(data);
                event.pop();
                return if event.is_empty() { Ok(()) } else { each(event) };
            }
            let Some([b':', b' ', value @ ..] | [b':', value @ ..] | value @ []) = line.strip_prefix(b"data")
            else {
                return Ok(());
            };
            if data.len() + value.len() > MAX_MESSAGE {
                return Err(Fault::Broken(format!("an event has more than {MAX_MESSAGE} bytes")));
            }
            data.push_str(&String::from_utf8_lossy(value));
            data.push('\n');
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(bytes: &[u8], step: usize) -> Vec<String> {
        let (mut events, mut got) = (Events::default(), Vec::new());
        for chunk in bytes.chunks(step) {
            events
                .take(chunk, |event| {
                    got.push(event);
                    Ok(())
                })
                .unwrap();
        }
        got
    }

    #[test]
    fn events_are_read_however_they_are_cut() {
        let text = b": hello\nid: 1\nevent: message\ndata: {\"a\":\ndata: 1}\n\ndata:x\r\n\r\ndata\n\nretry: 5\n\ndatum: y\n\ndata: cut";
        for step in 1..text.len() {
            assert_eq!(events(text, step), ["{\"a\":\n1}", "x"], "{step}");
        }
    }

    #[test]
    fn an_endless_event_is_not_kept() {
        let mut events = Events::default();
        let line = format!("data: {}\n", "x".repeat(64 * 1024));
        let refused = (0..1_000).position(|_| events.take(line.as_bytes(), |_| Ok(())).is_err());
        assert!(refused.is_some_and(|at| at <= MAX_MESSAGE / (64 * 1024) + 1));
    }
}
