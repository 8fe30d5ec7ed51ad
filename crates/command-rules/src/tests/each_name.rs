//! Every name of the deny list in every disguise, one in another, is refused; a harmless program in the same disguises is
//! not, so that the list is no reason to refuse what it does not name.

use operations::deny::{NAMES, is_denied};
use proptest::prelude::*;

use crate::testing::{exec, is_refused, quote};
use crate::{Seen, TooIntricate};

/// Puts a command line into another one.
type Disguise = fn(Vec<String>) -> Vec<String>;

fn behind(before: &str, command: Vec<String>) -> Vec<String> {
    before.split(' ').map(str::to_owned).chain(command).collect()
}

fn within(before: &str, command: &[String]) -> Vec<String> {
    let line: Vec<String> = command.iter().map(|word| quote(word)).collect();
    before.split(' ').map(str::to_owned).chain([line.join(" ")]).collect()
}

/// Those after which it is known where the command begins.
const PRECISE: [Disguise; 26] = [
    |command| behind("env", command),
    |command| behind("env -i A=b", command),
    |command| behind("/usr/bin/env -u X -C / --", command),
    |command| within("env -S", &command),
    |command| behind("nice -n 5", command),
    |command| behind("nice", command),
    |command| behind("nohup", command),
    |command| behind("timeout 5", command),
    |command| behind("timeout -k 1 --signal=KILL 5", command),
    |command| behind("setsid -w", command),
    |command| behind("stdbuf -oL -e 0", command),
    |command| behind("ionice -c 3", command),
    |command| behind("time -p", command),
    |command| behind("xargs", command),
    |command| behind("xargs -0 -n1", command),
    |command| behind("xargs -I X --max-procs=2", command),
    |command| behind("busybox", command),
    |command| behind("/bin/busybox", command),
    |command| behind("toybox", command),
    |command| [behind("find . -exec", command), vec!["{}".into(), ";".into()]].concat(),
    |command| [behind("find . -name x -okdir", command), vec!["{}".into(), "+".into()]].concat(),
    |command| within("sh -c", &command),
    |command| within("bash -lc", &command),
    |command| within("dash -e -c", &command),
    |command| within("busybox sh -c", &command),
    |command| within("eval", &command),
];

/// Those that may begin one with any of their arguments.
const ANYWHERE: [Disguise; 5] = [
    |command| behind("strace -f", command),
    |command| behind("taskset 1", command),
    |command| behind("setpriv --reuid 0", command),
    |command| within("flock lock -c", &command),
    |command| within("watch -n 1", &command),
];

/// As it may be written: case and directory.
const SPELLINGS: [fn(&str) -> String; 6] = [
    str::to_owned,
    str::to_ascii_uppercase,
    |name| format!("/bin/{name}"),
    |name| format!("/usr/local/sbin/../bin/{}{}", name[..1].to_ascii_uppercase(), &name[1..]),
    |name| format!("./{name}"),
    |name| format!("//sbin//{name}"),
];

/// The names, and some patterns that match all names with their beginning.
fn names() -> impl Iterator<Item = &'static str> {
    NAMES.into_iter().chain(["mkfs", "mkfs.ext4", "mkfs.vfat"])
}

fn seen(argv: &[String]) -> Result<Seen, TooIntricate> {
    Seen::of_command(&exec(argv))
}

fn is_by_name(argv: &[String]) -> bool {
    seen(argv).is_ok_and(|seen| seen.programs().any(is_denied))
}

#[test]
fn every_name_is_refused_in_every_disguise() {
    for name in names() {
        for spelling in SPELLINGS {
            let plain = vec![spelling(name), "-x".to_owned(), "a b".to_owned()];
            assert!(is_by_name(&plain), "{plain:?}");
            for disguise in PRECISE.into_iter().chain(ANYWHERE) {
                let argv = disguise(plain.clone());
                assert!(is_by_name(&argv), "{argv:?}");
            }
        }
    }
}

/// Harmless, whatever their arguments look like.
const HARMLESS: [&[&str]; 14] = [
    &["ls", "-l"],
    &["make", "test"],
    &["cargo", "build", "--release"],
    &["rmdir", "a"],
    &["./rm.sh"],
    &["/usr/bin/farm", "x"],
    &["format", "-i"],
    &["mountpoint", "/"],
    &["sum", "f"],
    &["python3", "-c", "print(1)"],
    &["passwd.py"],
    &["initdb"],
    &["kmkfs"],
    &["ddrescue", "a", "b"],
];

/// Harmless, with arguments that are names of the list.
const ABOUT: [&[&str]; 5] =
    [&["grep", "rm", "sudo"], &["ls", "/bin/rm"], &["git", "rm", "x"], &["which", "dd"], &["man", "mount"]];

fn owned(argv: &[&str]) -> Vec<String> {
    argv.iter().map(ToString::to_string).collect()
}

#[test]
fn harmless_commands_are_allowed_in_every_disguise() {
    for command in HARMLESS.into_iter().chain(ABOUT) {
        assert!(!is_refused(seen(&owned(command))), "{command:?}");
        for outer in PRECISE {
            for inner in PRECISE {
                let argv = outer(inner(owned(command)));
                assert!(!is_refused(seen(&argv)), "{argv:?}");
            }
        }
    }
    for command in HARMLESS {
        for disguise in ANYWHERE {
            let argv = disguise(owned(command));
            assert!(!is_refused(seen(&argv)), "{argv:?}");
        }
    }
}

fn disguises() -> impl Strategy<Value = Vec<Disguise>> {
    let any = PRECISE.into_iter().chain(ANYWHERE).collect::<Vec<_>>();
    prop::collection::vec(prop::sample::select(any), 2..=4)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_500))]

    #[test]
    fn four_disguises_hide_no_name(
        name in prop::sample::select(names().collect::<Vec<_>>()),
        spelling in prop::sample::select(SPELLINGS.to_vec()),
        disguises in disguises(),
        args in prop::collection::vec("[a-z=./ '-]{0,6}", 0..3),
    ) {
        let plain = std::iter::once(spelling(name)).chain(args).collect();
        let argv = disguises.iter().fold(plain, |command, disguise| disguise(command));
        prop_assert!(is_refused(seen(&argv)), "{:?}", argv);
    }

    #[test]
    fn four_disguises_do_not_make_a_program_harmful(
        command in prop::sample::select(HARMLESS.to_vec()),
        disguises in disguises(),
    ) {
        let argv = disguises.iter().fold(owned(command), |command, disguise| disguise(command));
        prop_assert!(!is_refused(seen(&argv)), "{:?}", argv);
    }
}
