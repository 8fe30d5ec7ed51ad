//! Files that commands use, whether or not their words name them.

use std::fs;
use std::os::unix::fs::symlink;

use harness::v1::operation::Kind as Operation;
use harness::{calls, v1};

use super::{EVIL, GOOD, Kind, Target, kind};

/// All of them.
pub(super) fn kinds() -> Vec<Kind> {
    [named(), found(), around()].into_iter().flatten().collect()
}

fn script(target: &Target) {
    target.put("run.sh", GOOD);
}
fn env(name: &str, value: &str, argv: &[&str]) -> Operation {
    let Operation::Exec(exec) = calls::exec(argv) else { unreachable!() };
    let env = [(name.to_owned(), value.to_owned())].into();
    Operation::Exec(v1::ExecRequest { env, ..exec })
}

fn fed(argv: &[&str], stdin: &str) -> Operation {
    let Operation::Exec(exec) = calls::exec(argv) else { unreachable!() };
    Operation::Exec(v1::ExecRequest { stdin: stdin.as_bytes().to_vec(), ..exec })
}
/// What commands read whose words lead there, in one way or another.
fn named() -> Vec<Kind> {
    vec![
        kind("a script, replaced", script, || calls::exec(&["sh", "run.sh"]), |p| p.replace("run.sh", EVIL)),
        kind("a script, in target", script, || calls::exec(&["sh", "run.sh"]), |p| p.put("run.sh", EVIL)),
        kind(
            "a script, in target with its old size and time",
            script,
            || calls::exec(&["sh", "run.sh"]),
            |p| p.disguise("run.sh", EVIL),
        ),
        kind(
            "sh -- -s.sh",
            |p| p.put("-s.sh", GOOD),
            || calls::exec(&["sh", "--", "-s.sh"]),
            |p| p.replace("-s.sh", EVIL),
        ),
        kind(
            "a script in another directory",
            |p| p.put("d/s.sh", GOOD),
            || calls::exec(&["sh", "-c", "cd d && sh s.sh"]),
            |p| p.replace("d/s.sh", EVIL),
        ),
        kind(
            "awk -fp.awk",
            |p| {
                p.put("p.awk", "{print \"GOOD\"}\n");
                p.put("i", "x\n");
            },
            || calls::exec(&["awk", "-fp.awk", "i"]),
            |p| p.replace("p.awk", "{print \"EVIL\"}\n"),
        ),
        kind(
            "sed -fp.sed",
            |p| {
                p.put("p.sed", "s/x/GOOD/\n");
                p.put("i", "x\n");
            },
            || calls::exec(&["sed", "-fp.sed", "i"]),
            |p| p.replace("p.sed", "s/x/EVIL/\n"),
        ),
        kind(
            "the input of a program",
            |p| p.put("i", "GOOD\n"),
            || calls::exec(&["sort", "i"]),
            |p| p.replace("i", "EVIL\n"),
        ),
        kind(
            "sh /tmp/t.sh",
            |p| p.within("echo echo GOOD > /tmp/t.sh"),
            || calls::exec(&["sh", "/tmp/t.sh"]),
            |p| p.within("echo echo EVIL > /tmp/t.sh"),
        ),
        kind(
            "a file in @state",
            |p| p.within("echo echo GOOD > /state/t.sh"),
            || calls::exec(&["sh", "/state/t.sh"]),
            |p| p.within("echo echo EVIL > /state/t.sh"),
        ),
        kind(
            "what a variable names",
            |p| p.put("lib.sh", GOOD),
            || env("CI", "/workspace/lib.sh", &["sh", "-c", ". $CI"]),
            |p| p.replace("lib.sh", EVIL),
        ),
    ]
}

/// What they find for themselves.
fn found() -> Vec<Kind> {
    vec![
        kind(
            "a program found by a path of the workspace",
            |p| {
                p.put("bin/foo", "#!/bin/sh\necho GOOD\n");
                p.chmod("bin/foo", 0o755);
            },
            || calls::exec(&["env", "PATH=/workspace/bin:/bin", "foo"]),
            |p| {
                p.put("aside", "#!/bin/sh\necho EVIL\n");
                p.chmod("aside", 0o755);
                fs::rename(p.at("aside"), p.at("bin/foo")).unwrap();
            },
        ),
        kind(
            "a program by its path",
            |p| {
                p.put("foo", "#!/bin/sh\necho GOOD\n");
                p.chmod("foo", 0o755);
            },
            || calls::exec(&["/workspace/foo"]),
            |p| p.put("foo", "#!/bin/sh\necho EVIL\n"),
        ),
        kind(
            "find -exec",
            |p| p.put("d/s.sh", GOOD),
            || calls::exec(&["find", "d", "-name", "*.sh", "-exec", "sh", "{}", ";"]),
            |p| p.replace("d/s.sh", EVIL),
        ),
        kind(
            "one more for find -exec",
            |p| p.put("d/s.sh", GOOD),
            || calls::exec(&["find", "d", "-name", "*.sh", "-exec", "sh", "{}", ";"]),
            |p| p.put("d/deeper/t.sh", EVIL),
        ),
        kind(
            "sh *.sh",
            |p| p.put("a.sh", GOOD),
            || calls::exec(&["sh", "-c", "sh *.sh"]),
            |p| p.put("Z.sh", EVIL),
        ),
        kind(
            "xargs",
            |p| p.put("s.sh", GOOD),
            || fed(&["xargs", "sh"], "s.sh\n"),
            |p| p.replace("s.sh", EVIL),
        ),
        kind(
            "a pipe into a shell",
            |p| p.put("data", GOOD),
            || calls::exec(&["sh", "-c", "cat data | sh"]),
            |p| p.replace("data", EVIL),
        ),
        kind(
            "a file that a script takes in",
            |p| {
                p.put("run.sh", ". ./lib.sh\n");
                p.put("lib.sh", GOOD);
            },
            || calls::exec(&["sh", "run.sh"]),
            |p| p.replace("lib.sh", EVIL),
        ),
    ]
}

/// What changes around them.
fn around() -> Vec<Kind> {
    vec![
        kind(
            "a link, led elsewhere",
            |p| {
                p.put("good.sh", GOOD);
                p.put("evil.sh", EVIL);
                symlink("good.sh", p.at("run.sh")).unwrap();
            },
            || calls::exec(&["sh", "run.sh"]),
            |p| {
                fs::remove_file(p.at("run.sh")).unwrap();
                symlink("evil.sh", p.at("run.sh")).unwrap();
            },
        ),
        kind(
            "a directory, exchanged",
            |p| {
                p.put("d/s.sh", GOOD);
                p.put("e/s.sh", EVIL);
            },
            || calls::exec(&["sh", "d/s.sh"]),
            |p| {
                fs::rename(p.at("d"), p.at("x")).unwrap();
                fs::rename(p.at("e"), p.at("d")).unwrap();
            },
        ),
        kind(
            "by another name of the same file",
            |p| {
                p.put("run.sh", GOOD);
                fs::hard_link(p.at("run.sh"), p.at("other")).unwrap();
            },
            || calls::exec(&["sh", "run.sh"]),
            |p| p.put("other", EVIL),
        ),
        kind("permissions", script, || calls::exec(&["sh", "run.sh"]), |p| p.chmod("run.sh", 0o755)),
        kind(
            "a file that appears",
            |p| p.put("run.sh", "[ ! -e flag ] || echo EVIL\n"),
            || calls::exec(&["sh", "run.sh"]),
            |p| p.put("flag", ""),
        ),
        kind(
            "a file that goes",
            |p| {
                p.put("run.sh", "[ -e flag ] || echo EVIL\n");
                p.put("flag", "");
            },
            || calls::exec(&["sh", "run.sh"]),
            |p| fs::remove_file(p.at("flag")).unwrap(),
        ),
        kind(
            "a hidden file, deep",
            |p| {
                p.put("run.sh", ". ./a/.b/.c/lib\n");
                p.put("a/.b/.c/lib", GOOD);
            },
            || calls::exec(&["sh", "run.sh"]),
            |p| p.put("a/.b/.c/lib", EVIL),
        ),
    ]
}
