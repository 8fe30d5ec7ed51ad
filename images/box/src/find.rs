//! `find`, as far as it only looks.
//!
//! The actions that delete, write files or start programs are refused, so that the image keeps its word whatever the
//! policy in front of it says. They are refused by their spelling wherever they stand: a file that is really named
//! `-delete` is looked for as `./-delete`.

use std::ffi::OsString;

use findutils::find::{StandardDependencies, find_main};

const REFUSED: i32 = 1;

const ACTIONS_WITH_EFFECT: [&str; 9] =
    ["-delete", "-exec", "-execdir", "-fls", "-fprint", "-fprint0", "-fprintf", "-ok", "-okdir"];

pub(crate) fn main(args: Vec<OsString>) -> i32 {
    // It reports a closed pipe by a panic, which this build turns into an abort: better to end quietly at the signal.
    let _ = uucore::signals::enable_pipe_errors();

    let args: Vec<String> = match args.into_iter().map(OsString::into_string).collect() {
        Ok(args) => args,
        Err(argument) => {
            eprintln!("find: this argument is not valid UTF-8: {}", argument.display());
            return REFUSED;
        }
    };
    if let Some(action) = args.iter().find(|arg| ACTIONS_WITH_EFFECT.contains(&arg.as_str())) {
        eprintln!("find: {action} is not part of this image's find, which only looks");
        return REFUSED;
    }
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    find_main(&args, &StandardDependencies::new())
}
