//! The deny list, and the ways around it that are seen.

use operations::Exec;
use operations::deny::is_denied;

use crate::Seen;
use crate::testing::{exec, is_refused};

/// Command lines, each a list of words.
type Lines = &'static [&'static [&'static str]];

const COMMON: Lines = &[
    &["rm", "-rf", "/"],
    &["/bin/RM", "x"],
    &["/usr/bin/../bin/rm"],
    &["mkfs.ext4", "/dev/sda"],
    &["env", "rm"],
    &["env", "A=1", "-i", "-u", "B", "rm", "x"],
    &["env", "-S", "A=1 rm -rf x"],
    &["env", "-iS", "nice rm"],
    &["env", "--split-string=rm x"],
    &["env", "-S", "nice -n 5", "rm"],
    &["env", "--chdir", "/", "rm"],
    &["nice", "-n", "5", "rm"],
    &["nice", "-5", "rm"],
    &["nice", "--adjustment", "5", "rm"],
    &["nice", "--adj", "5", "rm"],
    &["nohup", "rm"],
    &["timeout", "-s", "KILL", "-k5", "10", "rm"],
    &["timeout", "--preserve-status", "--signal=KILL", "10", "rm"],
    &["stdbuf", "-oL", "-e", "0", "rm"],
    &["setsid", "-w", "rm"],
    &["xargs", "-0", "-n1", "-I", "{}", "rm", "{}"],
    &["xargs", "-i", "rm"],
    &["xargs", "--max-args", "1", "rm"],
    &["busybox", "rm"],
    &["/bin/BusyBox", "sh", "-c", "rm x"],
    &["/bin/busybox", "dd"],
    &["toybox", "nice", "toybox", "rm"],
    &["find", ".", "-name", "x", "-exec", "rm", "{}", ";"],
    &["find", ".", "-type", "f", "-execdir", "env", "rm", "{}", "+"],
    &["find", ".", "-true", "-exec", "true", ";", "-ok", "/bin/rm", ";"],
    &["sh", "-c", "make && rm x"],
    &["bash", "-lc", "r\"\"m x"],
    &["bash", "-o", "pipefail", "-c", "cat x | xargs rm"],
    &["dash", "-ec", "echo \"$(rm x)\""],
    &["sh", "-c", "env \"$(true)\" rm x"],
    &["sh", "-c", "time -p rm x"],
    &["sh", "-c", "nice -n \"$(x)\" rm x; env $UNSET rm x"],
    &["sh", "-c", "$UNSET rm x"],
    &["sh", "-c", "sh -c 'sh -c \"rm x\"'"],
    &["sh", "-c", "eval 'rm x'"],
    &["strace", "-f", "-o", "log", "rm"],
    &["watch", "rm x"],
    &["flock", "lock", "-c", "rm x"],
    &["/lib64/ld-linux-x86-64.so.2", "/bin/rm", "x"],
    &["time", "-p", "rm"],
    &["ionice", "-c", "3", "sudo", "true"],
    &["doas", "true"],
    &["timeout", "5", "env", "nice", "nohup", "xargs", "SHUTDOWN"],
];

/// Any case, any path, other makers'.
const OTHER_NAMES: Lines = &[
    &["/USR/BIN/RM"],
    &["\u{17f}udo", "true"],
    &["/bin/../bin/./rm"],
    &["grm"],
    &["gnurm"],
    &["uu-rm"],
    &["sudo-rs", "true"],
];

/// Multi-call binaries, whatever they are called.
const MULTI_CALL: Lines = &[
    &["busybox-1.36", "rm"],
    &["/workspace/BusyBox.static", "rm"],
    &["coreutils", "rm"],
    &["coreutils", "--coreutils-prog=rm", "x"],
    &["coreutils", "--coreutils-prog-shebang=rm", "rm", "x"],
    &["uutils", "rm"],
    &["/proc/self/exe", "rm", "x"],
    &["/proc/1/root/bin/busybox", "rm"],
    &["/dev/fd/3", "rm"],
    &["bash", "-c", "exec -a rm /bin/busybox x"],
    &["bash", "-c", "exec -arm busybox x"],
    &["bash", "-c", "exec -a -rm busybox x"],
    &["bash", "-c", "exec -a-rm busybox x"],
    &["env", "--argv0=rm", "busybox", "x"],
    &["env", "-a", "rm", "busybox", "x"],
];

/// Wrappers and their options.
const WRAPPERS: Lines = &[
    &["env", "--", "rm"],
    &["env", "--", "A=1", "rm"],
    &["env", "--split=rm x"],
    &["env", "--s", "rm x"],
    &["env", "-vS", "rm x"],
    &["env", "-C/", "rm"],
    &["nice", "-n5", "--", "rm"],
    &["nice", "--5", "rm"],
    &["timeout", "-k", "1", "5", "rm"],
    &["timeout", "--kill-after", "1", "5", "rm"],
    &["setsid", "--fork", "rm"],
    &["chrt", "-f", "1", "rm"],
    &["taskset", "-c", "0", "rm"],
    &["unshare", "-r", "true"],
    &["script", "-c", "rm x", "log"],
    &["script", "-qc", "rm x"],
    &["script", "-qcrm x"],
    &["script", "-crm"],
    &["script", "--command=rm x"],
    &["flock", "lock", "-c", "rm"],
    &["flock", "lock", "-crm x"],
    &["flock", "lock", "--command=rm"],
    &["strace", "-o", "|rm", "true"],
    &["strace", "-o|rm x", "true"],
    &["watch", "-n1", "-x", "rm"],
    &["parallel", "rm", ":::", "a"],
    &["parallel", "-j2", "rm {}", ":::", "a"],
    &["prlimit", "--nproc=1", "rm"],
    &["setarch", "-R", "rm"],
    &["ld.so", "/bin/rm"],
    &["/lib/ld-musl-x86_64.so.1", "--argv0", "x", "/bin/rm"],
    &["/lib/ld-linux-aarch64.so.1", "/bin/rm"],
    &["/lib64/ld64.so.2", "/bin/rm"],
    &["/lib/ld-2.31.so", "/bin/rm"],
    &["tmux", "new", "-d", "rm x"],
    &["find", ".", "-exec", "sh", "-c", "rm $1", "_", "{}", ";"],
    &["fd", "-x", "rm"],
    &["fdfind", ".", "--exec-batch", "rm"],
    &["fd", "--exec=rm"],
    &["sort", "--compress-program=rm", "a"],
    &["sort", "--compress-prog", "rm", "a"],
    &["split", "--filter=rm $FILE", "a"],
    &["tar", "-xf", "a", "--to-command=rm"],
    &["tar", "-xf", "a", "--checkpoint-action=exec=rm x"],
    &["tar", "-I", "rm x", "-xf", "a"],
    &["tar", "-Irm", "-xf", "a"],
    &["rg", "--pre", "rm", "x"],
    &["rsync", "-e", "rm", "a", "b:"],
];

/// Shells of any name, and what they read.
const SHELLS: Lines = &[
    &["bash-static", "-c", "rm x"],
    &["ksh93", "-c", "rm x"],
    &["zsh-5.9", "-fc", "rm x"],
    &["fish", "--command=rm x"],
    &["yash", "-c", "rm x"],
    &["sh", "-c", "sh <<E\nrm x\nE\n"],
    &["sh", "-c", "bash -es <<< 'rm x'"],
    &["sh", "-c", "cat <<E | sh\nrm x\nE\n"],
    &["sh", "-c", "echo 'rm x' | sh"],
    &["sh", "-c", "printf 'ls\\nrm x\\n' | bash -e"],
    &["sh", "-c", "eval \"$(echo rm x)\""],
    &["sh", "-c", ". /dev/stdin <<E\nrm x\nE\n"],
    &["bash", "-c", "source <(echo rm x)"],
    &["sh", "-c", "trap 'rm x' EXIT"],
    &["sh", "-c", "alias x='rm -rf'\nx y"],
    &["sh", "-c", "hash -p /bin/rm x; x y"],
    &["sh", "-c", "at now <<< 'rm x'"],
    &["sh", "-c", "time -p rm x"],
    &["sh", "-c", "if true; then exec rm x; fi"],
];

#[test]
fn the_deny_list_is_seen_through_every_disguise() {
    for argv in [COMMON, OTHER_NAMES, MULTI_CALL, WRAPPERS, SHELLS].concat() {
        let seen = Seen::of_command(&exec(argv)).unwrap();
        assert!(seen.programs().any(is_denied), "{argv:?}");
    }
}

#[test]
fn names_that_only_look_denied_are_not() {
    let refused = |argv: &[&str]| is_refused(Seen::of_command(&exec(argv)));
    for line in [
        "grep rm file",
        "timeout 5 grep rm file",
        "env A=rm make",
        "echo sudo",
        "xargs -n 1 grep mount",
        "find . -name rm",
    ] {
        assert!(!refused(&line.split(' ').collect::<Vec<_>>()), "{line}");
    }
    for argv in [
        &["bash", "build.sh", "rm"][..],
        &["bash", "-o", "pipefail", "build.sh", "rm"],
        &["sort", "-c", "rm"],
        &["tar", "-cf", "rm.tar", "rm"],
        &["rg", "--pretty", "rm"],
        &["strace", "-ddd", "ls"],
        &["nice", "-n", "5", "grep", "rm"],
    ] {
        assert!(!refused(argv), "{argv:?}");
    }
    for script in [
        "grep rm file # rm",
        "command -v sudo >/dev/null || echo no sudo",
        "which rm; type mount",
        "echo 'rm x'; printf 'sudo\\n'",
        "echo 'rm x' | grep rm",
        "cat > README.md <<'EOF'\nsudo make install\nrm -rf build\nEOF\n",
        "case $1 in rm) echo gone;; mount|umount) ls;; esac",
        "git rm x; git commit -m 'rm x'",
        "files=(*); for f in \"${files[@]}\"; do wc -l \"$f\"; done",
        "[ -e x ] && [[ a == b* ]]; ls *",
        "for f in mount init; do cat $f; done",
        "echo rm | bash build.sh",
    ] {
        assert!(!refused(&["sh", "-c", script]), "{script}");
    }
}

#[test]
fn standard_input_of_a_shell_is_a_script() {
    let fed = |argv: &[&str], stdin: &str| {
        is_refused(Seen::of_command(&Exec { stdin: stdin.into(), ..exec(argv) }))
    };
    for argv in [
        &["sh"][..],
        &["bash", "-s", "arg"],
        &["bash", "-eu"],
        &["sh", "-"],
        &["bash", "--norc"],
        &["bash", "-o", "pipefail"],
        &["sh", "/dev/stdin"],
        &["env", "nice", "sh"],
        &["busybox", "sh"],
        &["sh", "-c", "cat | sh"],
        &["parallel"],
        &["batch"],
    ] {
        assert!(fed(argv, "ls\nrm x\n"), "{argv:?}");
        assert!(!fed(argv, "ls\n"), "{argv:?}");
    }
    for argv in [&["cat"][..], &["sh", "count.sh"], &["sh", "-c", "wc -l"], &["python3"], &["xargs", "ls"]] {
        assert!(!fed(argv, "rm x\n"), "{argv:?}");
    }
    assert!(fed(&["sh"], &"x ".repeat(500_000)), "more than can be looked through");
    assert!(!fed(&["sh", "-c", "wc -l"], &"x ".repeat(500_000)));
    assert!(!fed(&["sh"], "\u{0}\u{7f}ELF"));
}
