//! The table of applets: the one place that says what the image can do.

use std::{
    ffi::{OsStr, OsString},
    io::Write as _,
};

use crate::{find, sh};

/// What is answered when an applet could not even start.
const CANNOT_START: i32 = 125;
const FAILURE: i32 = 1;

/// One utility.
pub(crate) struct Applet {
    /// The base name that it is called by.
    pub(crate) name: &'static str,
    main: Main,
    /// Whether it needs uucore's catalogue of messages for these arguments. To load it takes as long as all else that a
    /// short one does.
    speaks: fn(&[OsString]) -> bool,
}

/// Takes all arguments, the program's name first; gives the exit code.
type Main = fn(Vec<OsString>) -> i32;

/// Every applet, in the order of the alphabet.
pub(crate) const ALL: &[Applet] = &[
    Applet { name: "cat", main: |args| uu_cat::uumain(args.into_iter()), speaks: always },
    Applet { name: "echo", main: |args| uu_echo::uumain(args.into_iter()), speaks: always },
    Applet { name: "false", main: |args| uu_false::uumain(args.into_iter()), speaks: lone },
    Applet { name: "find", main: find::main, speaks: own },
    Applet { name: "head", main: |args| uu_head::uumain(args.into_iter()), speaks: always },
    Applet { name: "id", main: |args| uu_id::uumain(args.into_iter()), speaks: always },
    Applet { name: "ls", main: |args| uu_ls::uumain(args.into_iter()), speaks: always },
    Applet { name: "sh", main: sh::main, speaks: own },
    Applet { name: "sleep", main: |args| uu_sleep::uumain(args.into_iter()), speaks: always },
    Applet { name: "tail", main: |args| uu_tail::uumain(args.into_iter()), speaks: always },
    Applet { name: "true", main: |args| uu_true::uumain(args.into_iter()), speaks: lone },
    Applet { name: "wc", main: |args| uu_wc::uumain(args.into_iter()), speaks: always },
];

/// Its errors, its help.
fn always(_: &[OsString]) -> bool {
    true
}

/// Only `--help`, and only alone.
fn lone(args: &[OsString]) -> bool {
    args.len() == 2
}

/// What it says is its own.
fn own(_: &[OsString]) -> bool {
    false
}

/// The applet of that name, if there is one.
pub(crate) fn named(name: &OsStr) -> Option<&'static Applet> {
    ALL.iter().find(|applet| name == applet.name)
}

impl Applet {
    /// Runs the applet to its end.
    pub(crate) fn run(&self, args: Vec<OsString>) -> i32 {
        uucore::panic::mute_sigpipe_panic();
        if (self.speaks)(&args)
            && let Err(error) = uucore::locale::setup_localization(self.name)
        {
            eprintln!("{}: its messages could not be loaded: {error}", self.name);
            return CANNOT_START;
        }
        let code = (self.main)(args);
        // Some utilities leave the last of their output in the buffer.
        let flushed = std::io::stdout().flush();
        match u8::try_from(code) {
            Ok(0) if flushed.is_err() => FAILURE,
            Ok(code) => code.into(),
            Err(_) => FAILURE,
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
