//! The table of applets: the one place that says what the image can do.

use std::{
    ffi::{OsStr, OsString},
    io::Write as _,
    process::ExitCode,
};

use crate::{find, sh};

/// What is answered when an applet could not even start.
const CANNOT_START: u8 = 125;

/// One utility.
pub(crate) struct Applet {
    /// The base name that it is called by.
    pub(crate) name: &'static str,
    main: Main,
}

/// Takes all arguments, the program's name first; gives the exit code.
type Main = fn(Vec<OsString>) -> i32;

/// Every applet, in the order of the alphabet.
pub(crate) const ALL: &[Applet] = &[
    Applet { name: "cat", main: |args| uu_cat::uumain(args.into_iter()) },
    Applet { name: "echo", main: |args| uu_echo::uumain(args.into_iter()) },
    Applet { name: "false", main: |args| uu_false::uumain(args.into_iter()) },
    Applet { name: "find", main: find::main },
    Applet { name: "head", main: |args| uu_head::uumain(args.into_iter()) },
    Applet { name: "id", main: |args| uu_id::uumain(args.into_iter()) },
    Applet { name: "ls", main: |args| uu_ls::uumain(args.into_iter()) },
    Applet { name: "sh", main: sh::main },
    Applet { name: "sleep", main: |args| uu_sleep::uumain(args.into_iter()) },
    Applet { name: "tail", main: |args| uu_tail::uumain(args.into_iter()) },
    Applet { name: "true", main: |args| uu_true::uumain(args.into_iter()) },
    Applet { name: "wc", main: |args| uu_wc::uumain(args.into_iter()) },
];

/// The applet of that name, if there is one.
pub(crate) fn named(name: &OsStr) -> Option<&'static Applet> {
    ALL.iter().find(|applet| name == applet.name)
}

impl Applet {
    /// Runs the applet to its end.
    pub(crate) fn run(&self, args: Vec<OsString>) -> ExitCode {
        uucore::panic::mute_sigpipe_panic();
        if let Err(error) = uucore::locale::setup_localization(self.name) {
            eprintln!("{}: its messages could not be loaded: {error}", self.name);
            return ExitCode::from(CANNOT_START);
        }
        let code = (self.main)(args);
        // Some utilities leave the last of their output in the buffer.
        let flushed = std::io::stdout().flush();
        match u8::try_from(code) {
            Ok(0) if flushed.is_err() => ExitCode::FAILURE,
            Ok(code) => ExitCode::from(code),
            Err(_) => ExitCode::FAILURE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_has_no_name_twice() {
        assert!(ALL.windows(2).all(|pair| pair[0].name < pair[1].name));
    }

    #[test]
    fn only_whole_names_are_found() {
        assert_eq!(named(OsStr::new("cat")).map(|applet| applet.name), Some("cat"));
        assert!(named(OsStr::new("ca")).is_none());
        assert!(named(OsStr::new("")).is_none());
        assert!(named(OsStr::new("rm")).is_none());
    }
}
