//! Each applet, called as the image calls it: through a symlink that has its name.

#![allow(clippy::unwrap_used, reason = "a test that cannot set itself up has failed")]

use std::{
    fs,
    os::unix::{fs::symlink, process::ExitStatusExt as _},
    path::Path,
    process::{Command, Output, Stdio},
};

use tempfile::TempDir;

const APPLETS: [&str; 12] =
    ["cat", "echo", "false", "find", "head", "id", "ls", "sh", "sleep", "tail", "true", "wc"];

/// A `bin` of symlinks, and a directory to work in.
struct Image(TempDir);

impl Image {
    fn new() -> Self {
        let image = Self(TempDir::new().unwrap());
        fs::create_dir(image.0.path().join("bin")).unwrap();
        fs::create_dir(image.workspace()).unwrap();
        for applet in APPLETS {
            symlink(env!("CARGO_BIN_EXE_coffer-box"), image.0.path().join("bin").join(applet)).unwrap();
        }
        fs::write(image.workspace().join("lines"), "one\ntwo\nthree\n").unwrap();
        image
    }

    fn workspace(&self) -> std::path::PathBuf {
        self.0.path().join("workspace")
    }

    /// Nothing but the image's own programs can be found by name.
    fn command(&self, applet: &str, args: &[&str]) -> Command {
        let bin = self.0.path().join("bin");
        let mut command = Command::new(bin.join(applet));
        command.args(args).current_dir(self.workspace()).env_clear().env("PATH", bin).stdin(Stdio::null());
        command
    }

    fn run(&self, applet: &str, args: &[&str]) -> Output {
        self.command(applet, args).output().unwrap()
    }

    /// What it prints, when it succeeds and complains of nothing.
    fn prints(&self, applet: &str, args: &[&str]) -> String {
        let output = self.run(applet, args);
        let complaints = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && complaints.is_empty(), "{applet} {args:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn script(&self, script: &str) -> String {
        self.prints("sh", &["-c", script])
    }
}

#[test]
fn files_are_read() {
    let image = Image::new();
    assert_eq!(image.prints("cat", &["-n", "lines"]), "     1\tone\n     2\ttwo\n     3\tthree\n");
    assert_eq!(image.prints("head", &["-n", "1", "lines"]), "one\n");
    assert_eq!(image.prints("tail", &["-n", "2", "lines"]), "two\nthree\n");
    assert_eq!(image.prints("wc", &["-l", "lines"]), "3 lines\n");
    assert_eq!(image.prints("ls", &[]), "lines\n");
    assert_eq!(image.prints("find", &[".", "-type", "f", "-name", "l*"]), "./lines\n");
}

#[test]
fn small_words_are_said() {
    let image = Image::new();
    assert_eq!(image.prints("echo", &["-n", "a", "b"]), "a b");
    assert_eq!(image.prints("true", &[]), "");
    assert_eq!(image.prints("sleep", &["0.01"]), "");
    assert_eq!(image.run("false", &[]).status.code(), Some(1));
    let me = fs::metadata("/proc/self").map(|meta| std::os::unix::fs::MetadataExt::uid(&meta)).unwrap();
    assert_eq!(image.prints("id", &["-u"]), format!("{me}\n"));
}

#[test]
fn help_is_in_words() {
    let image = Image::new();
    for applet in APPLETS.into_iter().filter(|applet| *applet != "sh") {
        let output = image.run(applet, &["--help"]);
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(i32::from(applet == "false")), "{applet}");
        assert!(text.contains("Usage: ") && text.lines().count() > 5, "{applet}: {text}");
        // What a message is called in the catalogue is said where that was not loaded.
        assert!(!text.contains(&format!("{applet}-")) && !text.contains("common-"), "{applet}: {text}");
    }
    assert!(image.prints("true", &["--version"]).starts_with("true "));
    assert_eq!(image.prints("true", &["--help", "twice"]), "");
}

#[test]
fn failures_have_words_and_a_code() {
    let image = Image::new();
    let output = image.run("cat", &["absent"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "cat: absent: No such file or directory\n");
    assert_eq!(image.run("ls", &["absent"]).status.code(), Some(2));
    assert_eq!(image.run("sh", &["-c", "absent"]).status.code(), Some(127));
    assert_eq!(image.run("sh", &["-c", "if"]).status.code(), Some(2));
}

#[test]
fn find_only_looks() {
    let image = Image::new();
    for action in [
        &["-delete"][..],
        &["-exec", "cat", "{}", ";"],
        &["-execdir", "cat", "{}", "+"],
        &["-ok", "cat", "{}", ";"],
        &["-okdir", "cat", "{}", ";"],
        &["-fprint", "out"],
        &["-fprint0", "out"],
        &["-fprintf", "out", "%p"],
        &["-fls", "out"],
    ] {
        let output = image.run("find", &[&[".", "-type", "f"][..], action].concat());
        assert_eq!(output.status.code(), Some(1), "{action:?}");
        assert!(output.stdout.is_empty(), "{action:?}");
    }
    assert_eq!(image.prints("ls", &[]), "lines\n");
}

#[test]
fn another_name_is_refused() {
    let image = Image::new();
    let other = image.0.path().join("bin/rm");
    symlink(env!("CARGO_BIN_EXE_coffer-box"), &other).unwrap();
    for program in [other.as_path(), Path::new(env!("CARGO_BIN_EXE_coffer-box"))] {
        let output = Command::new(program).arg("lines").output().unwrap();
        assert_eq!(output.status.code(), Some(127));
        let complaint = String::from_utf8(output.stderr).unwrap();
        assert!(complaint.ends_with(&format!(" names: {}\n", APPLETS.join(" "))), "{complaint}");
    }
}

#[test]
fn the_shell_joins_programs() {
    let image = Image::new();
    assert_eq!(image.script("cat lines | head -n 2 | wc -l"), "2\n");
    assert_eq!(
        image.script("for i in 1 2; do echo $i; done > out; cat < out; echo $(wc -l < out)"),
        "1\n2\n2\n"
    );
    assert_eq!(
        image.script("f() { local x=$1; echo \"<$x>\"; }; f 'a b'; case ab in a*) echo yes;; esac"),
        "<a b>\nyes\n"
    );
    assert_eq!(
        image.script("cat absent 2>/dev/null || echo $?; echo l*; echo ${none:-else} $((6 * 7))"),
        "1\nlines\nelse 42\n"
    );
    assert_eq!(image.prints("sh", &["-c", "echo $0 $1 $#", "me", "a"]), "me a 1\n");
    assert_eq!(image.run("sh", &["-ec", "false; echo never"]).stdout, b"");
}

#[test]
fn the_shell_runs_a_file_and_its_stdin() {
    let image = Image::new();
    let script = image.workspace().join("script");
    fs::write(&script, "read line; echo \"$1: $line\"\n").unwrap();
    let lines = || fs::File::open(image.workspace().join("lines")).unwrap();
    let output = image.command("sh", &["script", "a"]).stdin(lines()).output().unwrap();
    assert_eq!(output.stdout, b"a: one\n");
    let output = image.command("sh", &["-s", "b"]).stdin(fs::File::open(script).unwrap()).output().unwrap();
    assert_eq!(output.stdout, b"b: \n");
}

#[test]
fn an_endless_writer_ends_with_its_reader() {
    let image = Image::new();
    assert_eq!(image.script("while :; do echo y; done | head -n 1; echo after"), "y\nafter\n");
    assert_eq!(image.script("cat /dev/zero | head -c 3 | wc -c"), "3\n");
    // More than a pipe holds, from a loop into a loop.
    let counted = "i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i + 1)); done | while read l; do n=$l; echo $n; done | tail -n 1";
    assert_eq!(image.script(counted), "line 19999\n");
}

#[test]
fn signals_do_what_they_say() {
    let image = Image::new();
    assert_eq!(image.run("sh", &["-c", "kill -TERM $$; echo never"]).status.signal(), Some(15));
    assert_eq!(image.script("trap 'echo caught' TERM; kill -s TERM $$; echo on"), "caught\non\n");
    assert_eq!(image.script("trap 'echo bye' EXIT; echo hi"), "hi\nbye\n");
    assert_eq!(image.script("sleep 60 & kill $!; wait $! 2>/dev/null; echo $?"), "143\n");
}
