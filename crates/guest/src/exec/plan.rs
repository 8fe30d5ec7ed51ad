//! Turns a request into a plan that can be forked: directory, program, arguments and environment, all checked.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::sync::OnceLock;
use std::time::Instant;

use file_ops::Cancel;
use jail::{AccessError, FileKind, Jail, OpenError, OpenErrorKind, SandboxPath};
use operations::{Bounds, Environment, Exec, Reason, ToolFailure};

use crate::args::Mounts;
use crate::call::Call;
use crate::exec::program;
use crate::fingerprint;
use crate::lane::Lane;
use crate::sys::Plan;

/// Variables that every command has, besides its home and git's identity, unless the call sets them.
const ENVIRONMENT: [(&str, &str); 3] = [("PATH", program::PATH), ("LANG", "C.UTF-8"), ("TERM", "dumb")];

/// Returns the directory in which commands may leave files, from the container's configuration.
///
/// Commands get no other variable of the guest's environment.
pub(super) fn home() -> &'static str {
    static HOME: OnceLock<String> = OnceLock::new();
    HOME.get_or_init(|| std::env::var("HOME").unwrap_or_else(|_| "/tmp".to_owned()))
}

/// Makes the plan on a thread for file access. `terminal` is the command's end of its terminal, if it has one.
pub(super) async fn make(
    call: &Call,
    lane: &Lane,
    exec: Exec,
    terminal: Option<OwnedFd>,
) -> Result<Plan, ToolFailure> {
    let (mounts, bounds, wait) = (lane.mounts.clone(), call.bounds.clone(), call.placed);
    let deadline = call.deadline.into_std();
    let environment = lane.environment();
    let made = lane.threads.run(move || prepare(&mounts, &environment, exec, &bounds, deadline)).await;
    let plan = made.unwrap_or_else(|_| Err(ToolFailure::new(Reason::Cancelled, "the guest is ending")))?;
    Ok(Plan { wait, terminal, ..plan })
}

/// Makes the plan of a command that waits, with pipes. Reads files, so it blocks.
pub(crate) fn prepare(
    mounts: &Mounts,
    run: &Environment,
    exec: Exec,
    bounds: &Bounds,
    deadline: Instant,
) -> Result<Plan, ToolFailure> {
    let jail = Lane::jail(mounts.iter(), bounds);
    let plan = plan(&jail, run, exec, bounds, true)?;
    for path in &bounds.reads {
        read_only(&jail, path)?;
    }
    if let Some(held) = &bounds.held_to {
        fingerprint::hold(mounts, held, &Cancel::new(Some(deadline)))?;
    }
    Ok(plan)
}

fn plan(
    jail: &Jail,
    run: &Environment,
    exec: Exec,
    bounds: &Bounds,
    wait: bool,
) -> Result<Plan, ToolFailure> {
    let cwd = enter(jail, &exec.cwd)?;
    let program = program::find(&exec, bounds, jail)?;
    let name = if exec.alias().is_some() { exec.program().into_owned() } else { exec.command.clone() };
    // A command that is allowed because it only reads may set no variable: any variable may change a program's behaviour.
    let only_reads = exec.only_reads || !bounds.reads.is_empty();
    let none = Environment::default();
    let env = environment(home(), bounds, if only_reads { &none } else { run }, exec.env);
    let args = std::iter::once(name).chain(exec.args).map(c_string).collect::<Result<_, _>>()?;
    let env =
        env.into_iter().map(|(name, value)| c_string(format!("{name}={value}"))).collect::<Result<_, _>>()?;
    Ok(Plan {
        program: c_string(program.into_os_string().into_vec())?,
        args,
        env,
        cwd,
        wait,
        terminal: None,
        stdin: None,
    })
}

/// Returns the command's environment. Git commits as the profile's author, like `git.commit`, unless the run or the call sets another.
fn environment(
    home: &str,
    bounds: &Bounds,
    run: &Environment,
    call: BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let (name, email) = (bounds.author_name.as_str(), bounds.author_email.as_str());
    let own = [
        ("HOME", home),
        ("GIT_AUTHOR_NAME", name),
        ("GIT_AUTHOR_EMAIL", email),
        ("GIT_COMMITTER_NAME", name),
        ("GIT_COMMITTER_EMAIL", email),
    ];
    let own = ENVIRONMENT.into_iter().chain(own);
    let own = own.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let run = run.variables().iter().map(|(name, value)| (name.clone(), value.clone()));
    own.chain(run).chain(call).collect()
}

/// Refuses a path that `read` and `list` would refuse, or on which a command could wait forever. A path that does not exist is left to the
/// command.
fn read_only(jail: &Jail, path: &SandboxPath) -> Result<(), ToolFailure> {
    let place = jail.readable(path)?;
    match place.metadata() {
        Ok(meta) if meta.kind == FileKind::Directory => Ok(place.open_dir().map(drop)?),
        Ok(_) => Ok(place.open_file().map(drop)?),
        Err(AccessError::Open(OpenError { kind: OpenErrorKind::NotFound, .. })) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Opens the working directory. The child enters it by this handle, because the name could be replaced before that.
fn enter(jail: &Jail, path: &SandboxPath) -> Result<OwnedFd, ToolFailure> {
    let dir = jail.executable(path)?.open_dir()?;
    dir.as_fd().try_clone_to_owned().map_err(|_| ToolFailure::new(Reason::Overloaded, "too many open files"))
}

fn c_string(text: impl Into<Vec<u8>>) -> Result<CString, ToolFailure> {
    CString::new(text).map_err(|_| ToolFailure::new(Reason::InvalidArgument, "a NUL byte in the command"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use operations::{Bounds, Environment};

    use super::environment;

    #[test]
    fn a_call_overrides_its_run_and_a_run_overrides_the_defaults() {
        let variable = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let run = Environment::from_daemon(BTreeMap::from([
            variable("LANG", "de"),
            variable("TOKEN", "of the run"),
            variable("MODE", "run"),
        ]));
        let call = BTreeMap::from([variable("MODE", "call")]);
        let found = environment("/tmp", &Bounds::default(), &run, call);
        let of = |name: &str| found[name].as_str();
        assert_eq!((of("LANG"), of("TOKEN"), of("MODE")), ("de", "of the run", "call"));
        assert_eq!((of("HOME"), of("TERM")), ("/tmp", "dumb"));
    }

    #[test]
    fn git_has_the_profiles_identity_unless_the_call_says_otherwise() {
        let bounds =
            Bounds { author_name: "Bob".into(), author_email: "bob@example.org".into(), ..Bounds::default() };
        let call = BTreeMap::from([("GIT_AUTHOR_NAME".to_owned(), "Ann".to_owned())]);
        let found = environment("/home/a", &bounds, &Environment::default(), call);
        let of = |name: &str| found[name].as_str();
        assert_eq!((of("GIT_AUTHOR_NAME"), of("GIT_AUTHOR_EMAIL")), ("Ann", "bob@example.org"));
        assert_eq!((of("GIT_COMMITTER_NAME"), of("GIT_COMMITTER_EMAIL")), ("Bob", "bob@example.org"));
        assert_eq!((of("HOME"), of("TERM")), ("/home/a", "dumb"));
    }
}
