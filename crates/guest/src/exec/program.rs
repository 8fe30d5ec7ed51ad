//! Finds the file that a command's name leads to, and checks that it may be run.
//!
//! The gateway has checked the name. This code also checks every file that the name leads to. So a link `ls` to `rm` is refused as `rm`,
//! and so is a script that `rm` interprets. A multi-call binary (`ls` → `busybox`) is checked by the name that it is called by, since its
//! own name is on no list. The purpose is to detect intent: a copy can have any name.

mod lead;

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use jail::Jail;
use operations::{Bounds, Exec, Reason, ToolFailure};
use rustix::fs::{Access as Mode, access};
use text::excerpt;

use lead::Rules;

/// Directories that are searched for programs, whatever `PATH` a call sets.
pub(super) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Files that login shells read in a home directory.
const STARTUP_FILES: [&str; 4] = [".bash_profile", ".bash_login", ".profile", ".bash_logout"];

/// Finds the program of a command, and checks every file that it leads to. Returns the path to execute from its working directory.
///
/// Links in the path are not resolved, because programs look at the name that they were called by.
pub(super) fn find(exec: &Exec, bounds: &Bounds, jail: &Jail) -> Result<PathBuf, ToolFailure> {
    let program = exec.program();
    let path = if program.starts_with('/') { located(exec, &program)? } else { lookup(&program)? };
    let cwd = exec.cwd.container_path();
    let rules = Rules { command: &exec.command, cwd: Path::new(&cwd), bounds, jail };
    if let Some(missing) = rules.follow(&path, &exec.args)? {
        return Err(no_interpreter(&exec.command, &missing));
    }
    // A shell executes the path as it was given, so that a script's `$0` is that path.
    let is_path = exec.command.contains('/') && exec.alias().is_none();
    Ok(if is_path { PathBuf::from(&exec.command) } else { path })
}

/// Returns the shell for scripts and terminals: bash, or `sh` if the image has no bash.
pub(super) fn login_shell() -> Result<&'static str, ToolFailure> {
    ["bash", "sh"].into_iter().find(|name| lookup(name).is_ok()).ok_or_else(|| {
        let message = format!(
            "this image has no shell (looked for bash and sh in {PATH}): run a program of the image by its name instead, or \
             use a run whose image has a shell"
        );
        ToolFailure::new(Reason::NotFound, message)
    })
}

/// Returns the option with which that shell takes a script. As a login shell it reads the image's `/etc/profile`.
///
/// It is no login shell if its home has startup files. A run can write those, and no reviewer has consented to them, but they would run
/// before the reviewed script.
pub(super) fn script_option(home: &str) -> &'static str {
    let planted = STARTUP_FILES.iter().any(|name| fs::symlink_metadata(Path::new(home).join(name)).is_ok());
    if planted { "-c" } else { "-lc" }
}

/// Variables that keep a shell from files that a run could write: its own, those of the scripts that it starts and of its line editor.
///
/// An interactive POSIX shell reads `ENV`, and bash reads `BASH_ENV` for a script. The files of line editors are those of readline and of
/// libedit. Bash executes `PROMPT_COMMAND` before each prompt, and keeps what is typed in `HISTFILE`.
pub(super) const READS_NOTHING: [(&str, &str); 6] = [
    ("ENV", "/dev/null"),
    ("BASH_ENV", "/dev/null"),
    ("INPUTRC", "/dev/null"),
    ("EDITRC", "/dev/null"),
    ("PROMPT_COMMAND", ""),
    ("HISTFILE", ""),
];

/// Returns the arguments of that shell at a terminal. It is a login shell if the call asks for arguments.
///
/// Otherwise it reads no startup file, which a run could write. Bash needs an option for that. [`READS_NOTHING`] suffices for the others.
pub(super) fn terminal_options(shell: &str, asked: &[String]) -> Vec<String> {
    let options: &[&str] = match (asked.is_empty(), shell) {
        (false, _) => &["-l"],
        (true, "bash") => &["--norc"],
        (true, _) => &[],
    };
    options.iter().map(ToString::to_string).collect()
}

/// Returns the path of a program that is named by a path, if it is an executable file.
fn located(exec: &Exec, program: &str) -> Result<PathBuf, ToolFailure> {
    let path = PathBuf::from(program);
    let said = excerpt(&exec.command);
    if exec.command.split('/').any(|name| name == "..") {
        // After a link, `..` leads elsewhere than the policy assumed, which reads only the text.
        let asked = Path::new(&exec.cwd.container_path()).join(&exec.command);
        let (asked, judged) = (fs::canonicalize(asked), fs::canonicalize(&path));
        if let (Ok(asked), judged) = (asked, judged.ok())
            && judged.is_none_or(|judged| judged != asked)
        {
            let message = format!("{said}: `..` follows a link in this path; name the program without `..`");
            return Err(ToolFailure::new(Reason::SandboxViolation, message));
        }
    }
    match look(&path) {
        Found::Program => Ok(path),
        Found::Directory => {
            let message = format!("{said}: is a directory, not a program");
            Err(unusable(Reason::PermissionDenied, &message, CANNOT_RUN))
        }
        Found::NotExecutable => Err(not_executable(&exec.command)),
        Found::Nothing => {
            let relative = if exec.command.starts_with('/') {
                String::new()
            } else {
                format!(" (relative to {})", exec.cwd.container_path())
            };
            let message = format!("{said}: no such program in the run{relative}");
            Err(unusable(Reason::NotFound, &message, NO_PROGRAM))
        }
    }
}

fn lookup(name: &str) -> Result<PathBuf, ToolFailure> {
    let mut denied = None;
    for directory in PATH.split(':') {
        let path = Path::new(directory).join(name);
        match look(&path) {
            Found::Program => return Ok(path),
            Found::NotExecutable => denied = Some(path),
            Found::Directory | Found::Nothing => {}
        }
    }
    Err(denied.map_or_else(|| not_found(name), |path| not_executable(&path.to_string_lossy())))
}

enum Found {
    Program,
    Directory,
    NotExecutable,
    Nothing,
}

fn look(path: &Path) -> Found {
    match fs::metadata(path) {
        Ok(meta) if meta.is_dir() => Found::Directory,
        Ok(meta) if meta.is_file() && access(path, Mode::EXEC_OK).is_ok() => Found::Program,
        Ok(_) => Found::NotExecutable,
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Found::NotExecutable,
        Err(_) => Found::Nothing,
    }
}

/// Exit codes of a shell for a program that it does not find, and for one that it cannot run.
pub(super) const NO_PROGRAM: u8 = 127;
pub(super) const CANNOT_RUN: u8 = 126;

/// Returns the failure for a program that cannot be run, with the exit code of a shell.
pub(super) fn unusable(reason: Reason, message: &str, exit_code: u8) -> ToolFailure {
    let message = format!("{message} [exit code {exit_code}]");
    ToolFailure::new(reason, message).with("exit_code", exit_code.to_string())
}

fn not_found(name: &str) -> ToolFailure {
    let message = format!(
        "{}: no such program in this image (looked in {PATH}); there is no shell, so builtins, aliases and \
         operators such as && or | do not exist",
        excerpt(name)
    );
    unusable(Reason::NotFound, &message, NO_PROGRAM)
}

fn not_executable(path: &str) -> ToolFailure {
    let message = format!(
        "{}: permission denied: it is not an executable file (`chmod +x` makes it one)",
        excerpt(path)
    );
    unusable(Reason::PermissionDenied, &message, CANNOT_RUN)
}

fn no_interpreter(command: &str, interpreter: &Path) -> ToolFailure {
    let interpreter = interpreter.to_string_lossy();
    let line_ends = if interpreter.ends_with('\r') { "; the file has Windows line ends" } else { "" };
    let message = format!(
        "{}: its interpreter {:?} does not exist in this image{line_ends}",
        excerpt(command),
        excerpt(&interpreter)
    );
    unusable(Reason::NotFound, &message, NO_PROGRAM)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use jail::{GitReads, Mount, Protection, Root};
    use operations::Operation;
    use operations::deny::DenyList;
    use wire::v1;

    use super::*;

    fn find(command: &str, args: &[String], bounds: &Bounds, jail: &Jail) -> Result<PathBuf, ToolFailure> {
        let (command, args) = (command.to_owned(), args.to_vec());
        let request = v1::ExecRequest { command, args, ..Default::default() };
        let Ok(Operation::Exec(exec)) = Operation::try_from(request) else { panic!("no command") };
        super::find(&exec, bounds, jail)
    }

    struct Fixture {
        dir: tempfile::TempDir,
        jail: Jail,
    }

    fn fixture() -> Fixture {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(Mount::Project, dir.path()).unwrap();
        Fixture { jail: Jail::new([root], Protection { git_reads: GitReads::Guarded }), dir }
    }

    impl Fixture {
        fn path(&self, name: &str) -> String {
            self.dir.path().join(name).to_str().unwrap().to_owned()
        }

        fn file(&self, name: &str, mode: u32) -> String {
            let path = self.path(name);
            fs::write(&path, "#!/bin/sh\n").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            path
        }

        fn link(&self, name: &str, target: &str) -> String {
            symlink(target, self.path(name)).unwrap();
            self.path(name)
        }

        fn reason(&self, command: &str) -> Reason {
            let bounds = Bounds { denied_programs: vec!["docker*".to_owned()], ..Bounds::default() };
            find(command, &[], &bounds, &self.jail).unwrap_err().reason
        }

        fn code(&self, command: &str) -> String {
            let failure = find(command, &[], &Bounds::default(), &self.jail).unwrap_err();
            let code = failure.details["exit_code"].clone();
            assert!(failure.message.ends_with(&format!("[exit code {code}]")), "{}", failure.message);
            code
        }
    }

    #[test]
    fn bare_names_are_looked_up_in_the_fixed_path() {
        let fixture = fixture();
        let found = find("true", &[], &Bounds::default(), &fixture.jail).unwrap();
        assert_eq!(found.file_name().unwrap(), "true");
        assert!(found.is_absolute());
        assert_eq!(fixture.reason("no-such-program"), Reason::NotFound);
        assert_eq!((fixture.reason("./tool"), fixture.code("./tool")), (Reason::NotFound, "127".to_owned()));
        assert_eq!(fixture.code("no-such-program"), "127");
    }

    #[test]
    fn absolute_paths_must_be_executable_files() {
        let fixture = fixture();
        let tool = fixture.file("tool", 0o755);
        assert_eq!(find(&tool, &[], &Bounds::default(), &fixture.jail).unwrap(), Path::new(&tool));
        assert_eq!(fixture.reason(&fixture.file("text", 0o644)), Reason::PermissionDenied);
        assert_eq!(fixture.reason(&fixture.path("")), Reason::PermissionDenied);
        assert_eq!(fixture.reason(&fixture.path("gone")), Reason::NotFound);
        assert_eq!(fixture.code(&fixture.path("gone")), "127");
        assert_eq!(fixture.code(&fixture.path("text")), "126");
        assert_eq!(fixture.code(&fixture.path("")), "126");
    }

    #[test]
    fn parents_are_followed_as_text_or_not_at_all() {
        let fixture = fixture();
        let tool = fixture.file("tool", 0o755);
        fs::create_dir_all(fixture.path("a/b")).unwrap();
        let found = |path: &str| find(path, &[], &Bounds::default(), &fixture.jail).map(|_| ());
        assert_eq!(found(&fixture.path("a/b/../../tool")), Ok(()));
        assert_eq!(fixture.reason(&fixture.path("a/gone/../../tool/../none")), Reason::NotFound);
        fixture.link("l", "a/b");
        fs::copy(&tool, fixture.path("a/tool")).unwrap();
        assert_eq!(fixture.reason(&fixture.path("l/../tool")), Reason::SandboxViolation);
    }

    #[test]
    fn an_interpreter_that_is_missing_is_named() {
        let fixture = fixture();
        let script = fixture.file("script", 0o755);
        for (line, named) in [("#!/no/such -x\n", "\"/no/such\""), ("#!/bin/sh\r\n", "Windows line ends")] {
            fs::write(&script, line).unwrap();
            assert_eq!(
                (fixture.reason(&script), fixture.code(&script)),
                (Reason::NotFound, "127".to_owned())
            );
            let failure = find(&script, &[], &Bounds::default(), &fixture.jail).unwrap_err();
            assert!(failure.message.contains(named), "{}", failure.message);
        }
    }

    #[test]
    fn text_without_an_interpreter_is_the_shells() {
        let fixture = fixture();
        let script = fixture.file("script", 0o755);
        fs::write(&script, "echo a\n").unwrap();
        let bounds = |denied: &str| Bounds { denied_programs: vec![denied.to_owned()], ..Bounds::default() };
        assert!(find(&script, &[], &bounds("bash"), &fixture.jail).is_ok());
        let refused = find(&script, &[], &bounds("sh"), &fixture.jail).unwrap_err();
        assert_eq!(refused.reason, Reason::CommandNotAllowed);
    }

    #[test]
    fn links_are_seen_through() {
        let fixture = fixture();
        fixture.file("rm", 0o755);
        fixture.file("busybox", 0o755);
        assert_eq!(fixture.reason(&fixture.link("harmless", "rm")), Reason::CommandNotAllowed);
        assert_eq!(fixture.reason(&fixture.link("twice", "harmless")), Reason::CommandNotAllowed);
        assert_eq!(fixture.reason(&fixture.link("Dd", "busybox")), Reason::CommandNotAllowed);
        fixture.file("docker-compose", 0o755);
        assert_eq!(fixture.reason(&fixture.link("compose", "docker-compose")), Reason::CommandNotAllowed);
        assert!(
            find(&fixture.link("ls", "busybox"), &["a".into()], &Bounds::default(), &fixture.jail).is_ok()
        );
        let refusal = find(&fixture.path("harmless"), &[], &Bounds::default(), &fixture.jail).unwrap_err();
        assert!(refusal.message.starts_with("Command not allowed: /"), "{}", refusal.message);
    }

    #[test]
    fn without_the_deny_list_only_the_profiles_own_names_are_denied() {
        let fixture = fixture();
        let bounds =
            Bounds { deny_list: DenyList::Off, denied_programs: vec!["dd".to_owned()], ..Bounds::default() };
        let reason =
            |command: &str| find(command, &[], &bounds, &fixture.jail).err().map(|found| found.reason);
        fixture.file("rm", 0o755);
        fixture.file("dd", 0o755);
        assert_eq!(reason(&fixture.path("rm")), None);
        assert_eq!(reason(&fixture.link("harmless", "rm")), None);
        assert_eq!(reason(&fixture.link("copy", "dd")), Some(Reason::CommandNotAllowed));
        assert_eq!(reason("/proc/self/exe"), Some(Reason::SandboxViolation), "a path says nothing there");
    }

    #[test]
    fn interpreters_of_scripts_are_checked() {
        let fixture = fixture();
        let script = |name: &str, line: &str| {
            let path = fixture.file(name, 0o755);
            fs::write(&path, line).unwrap();
            path
        };
        for (name, line) in [
            ("a", "#!/bin/rm\n"),
            ("b", "#! /usr/bin/env rm"),
            ("c", "#!/usr/bin/env -S RM -rf\nx"),
            ("d", "#!/bin/busybox rm\n"),
        ] {
            assert_eq!(fixture.reason(&script(name, line)), Reason::CommandNotAllowed, "{line}");
        }
        let outer = script("e", &format!("#!{}\n", fixture.path("a")));
        assert_eq!(fixture.reason(&outer), Reason::CommandNotAllowed);
        let own = script("f", &format!("#!{}\n", fixture.path("f")));
        assert!(
            find(&own, &[], &Bounds::default(), &fixture.jail).is_ok(),
            "the kernel gives up on this one"
        );
        for (name, line) in [("g", "#!/bin/sh -e\nrm x\n"), ("h", "#!"), ("i", ""), ("j", "#!\u{0}\n")] {
            assert!(
                find(&script(name, line), &["rm".into()], &Bounds::default(), &fixture.jail).is_ok(),
                "{line}"
            );
        }
    }

    #[test]
    fn a_relative_interpreter_is_the_one_in_the_working_directory() {
        let fixture = fixture();
        fs::create_dir(fixture.path("bin")).unwrap();
        fixture.file("rm", 0o755);
        fixture.link("bin/true", "../rm");
        let script = fixture.file("script", 0o755);
        fs::write(&script, "#!bin/true\n").unwrap();
        let follow = |cwd: &str| {
            let cwd = Path::new(cwd);
            let rules = Rules { command: "script", cwd, bounds: &Bounds::default(), jail: &fixture.jail };
            rules.follow(Path::new(&script), &[])
        };
        assert_eq!(follow("/"), Ok(None));
        assert_eq!(follow(&fixture.path("")).unwrap_err().reason, Reason::CommandNotAllowed);
        let missing = PathBuf::from("/nonexistent/bin/true");
        assert_eq!(follow("/nonexistent"), Ok(Some(missing)));
    }

    #[test]
    fn a_multi_call_binary_is_judged_by_its_invoked_name() {
        let fixture = fixture();
        fixture.file("coreutils", 0o755);
        let reason = |command: &str, args: &[&str]| {
            let args: Vec<String> = args.iter().map(ToString::to_string).collect();
            find(command, &args, &Bounds::default(), &fixture.jail).err().map(|failure| failure.reason)
        };
        // Temporary directories are where a run can write.
        let named = fixture.link("x", "coreutils");
        assert_eq!(reason(&named, &["rm", "a"]), Some(Reason::CommandNotAllowed));
        assert_eq!(reason(&named, &["--coreutils-prog=rm", "a"]), Some(Reason::CommandNotAllowed));
        assert_eq!(reason(&named, &["env", "/bin/RM"]), Some(Reason::CommandNotAllowed));
        assert_eq!(reason(&named, &["ls", "a"]), None);
        assert_eq!(reason(&fixture.link("x-rm", "coreutils"), &[]), Some(Reason::CommandNotAllowed));
        assert_eq!(reason(&fixture.link("x-ls", "coreutils"), &["a"]), None);
    }

    #[test]
    fn proc_links_are_not_executed() {
        let fixture = fixture();
        assert_eq!(fixture.reason("/proc/self/exe"), Reason::SandboxViolation);
        assert_eq!(fixture.reason(&fixture.link("x", "/proc/self/exe")), Reason::SandboxViolation);
    }

    #[test]
    fn package_binaries_are_refused_by_their_container_path() {
        let fixture = fixture();
        let rules =
            Rules { command: "tsc", cwd: Path::new("/"), bounds: &Bounds::default(), jail: &fixture.jail };
        let refused = rules.follow(Path::new("/workspace/node_modules/.bin/tsc"), &[]).unwrap_err();
        assert_eq!(refused.reason, Reason::SandboxViolation);
        assert_eq!(refused.details.get("refusal").map(String::as_str), Some("package_binaries"));
    }

    #[test]
    fn home_with_startup_files_gets_no_login_shell() {
        let fixture = fixture();
        assert_eq!(script_option(&fixture.path("")), "-lc");
        assert_eq!(script_option("/nonexistent"), "-lc");
        for name in STARTUP_FILES {
            fixture.link(name, "/nonexistent");
            assert_eq!(script_option(&fixture.path("")), "-c", "{name}");
            fs::remove_file(fixture.path(name)).unwrap();
        }
    }
}
