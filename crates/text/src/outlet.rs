//! Prints a command's output as it arrives.

use std::io::{self, Write};

use crate::clean::Cleaner;

/// Writer for output. It writes bytes unchanged, or as harmless text to a terminal.
pub struct Outlet {
    stream: Box<dyn Write>,
    /// Present if the stream is a terminal.
    cleaner: Option<Cleaner>,
    /// True if the last line has no end yet.
    mid_line: bool,
}

impl Outlet {
    pub fn new(stream: Box<dyn Write>, terminal: bool) -> Self {
        Self { stream, cleaner: terminal.then(Cleaner::default), mid_line: false }
    }

    /// Writes bytes so that they appear at once.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.cleaner {
            Some(cleaner) => self.stream.write_all(cleaner.push(bytes).as_bytes())?,
            None => self.stream.write_all(bytes)?,
        }
        if let Some(last) = bytes.last() {
            self.mid_line = *last != b'\n';
        }
        self.stream.flush()
    }

    /// Ends the output. Returns true if the last line has no end.
    pub fn end(&mut self) -> io::Result<bool> {
        if let Some(cleaner) = &mut self.cleaner {
            self.stream.write_all(cleaner.end().as_bytes())?;
        }
        self.stream.flush()?;
        Ok(self.mid_line)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;

    #[derive(Clone, Default)]
    struct Seen(Rc<RefCell<Vec<u8>>>);

    impl Write for Seen {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.borrow_mut().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn written(terminal: bool, pieces: &[&[u8]]) -> (Vec<u8>, bool) {
        let seen = Seen::default();
        let mut outlet = Outlet::new(Box::new(seen.clone()), terminal);
        for piece in pieces {
            outlet.write(piece).unwrap();
        }
        let mid_line = outlet.end().unwrap();
        (seen.0.take(), mid_line)
    }

    #[test]
    fn a_pipe_gets_the_bytes_and_a_terminal_gets_text() {
        let pieces = [&b"a\xc3"[..], b"\xa4\x1b[2J", b"\xff\n"];
        assert_eq!(written(false, &pieces), (b"a\xc3\xa4\x1b[2J\xff\n".to_vec(), false));
        assert_eq!(written(true, &pieces), ("aä␛[2J\u{fffd}\n".into(), false));
        assert_eq!(written(true, &[b"x", b""]), (b"x".to_vec(), true));
        assert_eq!(written(false, &[]), (vec![], false));
    }
}
