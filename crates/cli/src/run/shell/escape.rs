//! Recognises `~.` at the beginning of a line, as with `ssh`. It leaves a session whose program does not react.

/// Help about the characters after a `~`.
pub(super) const HELP: &str = "\
~.  leave the session and end its processes
~~  a tilde
~?  this
";

/// An escape that is for `coffer` and not for the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    Leave,
    Help,
}

/// Parser that follows the typed bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Escape(State);

#[derive(Clone, Copy, Debug, Default)]
enum State {
    #[default]
    LineStart,
    Within,
    /// After a `~` at the beginning of a line, which is held back.
    Tilde,
}

impl Escape {
    /// Parses typed bytes. Returns the bytes for the run, and the escape among them.
    ///
    /// Bytes after [`Wish::Leave`] are ignored.
    pub(super) fn take(&mut self, typed: &[u8]) -> (Vec<u8>, Option<Wish>) {
        let mut out = Vec::with_capacity(typed.len() + 1);
        let mut wish = None;
        for &byte in typed {
            let after = if matches!(byte, b'\r' | b'\n') { State::LineStart } else { State::Within };
            self.0 = match (self.0, byte) {
                (State::LineStart, b'~') => State::Tilde,
                (State::Tilde, b'.') => {
                    self.0 = State::LineStart;
                    return (out, Some(Wish::Leave));
                }
                (State::Tilde, b'?') => {
                    wish = Some(Wish::Help);
                    State::LineStart
                }
                (State::Tilde, b'~') => {
                    out.push(b'~');
                    State::Within
                }
                (State::Tilde, byte) => {
                    out.extend([b'~', byte]);
                    after
                }
                (State::LineStart | State::Within, byte) => {
                    out.push(byte);
                    after
                }
            };
        }
        (out, wish)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(text: &str) -> (String, Option<Wish>) {
        let whole = Escape::default().take(text.as_bytes());
        // Key by key it is the same.
        let mut escape = Escape::default();
        let (mut out, mut wish) = (Vec::new(), None);
        for byte in text.bytes() {
            let (more, next) = escape.take(&[byte]);
            out.extend(more);
            wish = next.or(wish);
            if wish == Some(Wish::Leave) {
                break;
            }
        }
        assert_eq!(whole, (out, wish));
        (String::from_utf8(whole.0).unwrap(), whole.1)
    }

    #[test]
    fn only_at_the_beginning_of_a_line() {
        assert_eq!(typed("~."), (String::new(), Some(Wish::Leave)));
        assert_eq!(typed("ls\r~."), ("ls\r".into(), Some(Wish::Leave)));
        assert_eq!(typed("ls\n~.rest"), ("ls\n".into(), Some(Wish::Leave)));
        assert_eq!(typed("ls ~.\r"), ("ls ~.\r".into(), None));
        assert_eq!(typed("a~."), ("a~.".into(), None));
    }

    #[test]
    fn a_literal_tilde_passes() {
        assert_eq!(typed("~/bin\r"), ("~/bin\r".into(), None));
        assert_eq!(typed("~~."), ("~.".into(), None));
        assert_eq!(typed("~\r~."), ("~\r".into(), Some(Wish::Leave)));
        assert_eq!(typed("~?x"), ("x".into(), Some(Wish::Help)));
        assert_eq!(typed("~?~."), (String::new(), Some(Wish::Leave)));
    }
}
