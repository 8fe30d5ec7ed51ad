mod differential;
mod disguises;
mod each_name;
mod real_wrappers;

use operations::deny::{NAMES, base_name, is_denied};
use proptest::prelude::*;

use crate::see_through::{TooIntricate, see_through};
use crate::testing::{exec, is_refused, quote};
use crate::{Seen, only_reads};

fn refused<S: AsRef<str>>(argv: &[S]) -> bool {
    is_refused(Seen::of_command(&exec(argv)))
}

#[test]
fn intricate_command_lines_are_refused_quickly() {
    for word in ["strace", "env", "xargs", "eval", "sh"] {
        effort::assert_linear(4_000, |words| vec![word; words], |argv| refused(argv));
    }
    let nested = (0..12).fold("rm x".to_owned(), |script, _| format!("sh -c {}", quote(&script)));
    let _ = refused(&["sh", "-c", &nested[..nested.len().min(100_000)]]);
    assert_eq!(
        see_through(std::iter::repeat_n("strace".to_owned(), 4_000).collect(), b"").err(),
        Some(TooIntricate)
    );
}

fn denied_name() -> impl Strategy<Value = String> {
    let cased = (prop::sample::select(NAMES.to_vec()), any::<u32>()).prop_map(|(name, bits)| {
        let flip = |(i, c): (usize, char)| if bits >> (i % 32) & 1 == 1 { c.to_ascii_uppercase() } else { c };
        name.chars().enumerate().map(flip).collect::<String>()
    });
    let prefix = prop::sample::select(vec!["", "/bin/", "/usr/bin/", "./", "../", "/workspace/a/", "//"]);
    (prefix, cased).prop_map(|(prefix, name)| format!("{prefix}{name}"))
}

fn wrap(inner: BoxedStrategy<Vec<String>>) -> BoxedStrategy<Vec<String>> {
    let before = prop::sample::select(vec![
        "env",
        "env -i A=1",
        "env -u X",
        "nice",
        "nice -n 3",
        "nohup",
        "timeout 5",
        "timeout -k 1 5",
        "xargs",
        "xargs -0 -I X",
        "stdbuf -o0",
        "setsid",
        "busybox",
        "busybox-static",
        "time -p",
        "ionice -c 2",
        "strace -f",
        "find . -name x -exec",
        "find . -okdir",
        "command",
        "setpriv --reuid 0",
        "env -S nice",
        "taskset 1",
    ]);
    (before, inner, any::<bool>())
        .prop_map(|(before, inner, as_script)| {
            if as_script {
                let line: Vec<String> = inner.iter().map(|word| quote(word)).collect();
                vec!["sh".to_owned(), "-c".to_owned(), line.join(" ")]
            } else {
                before.split(' ').map(str::to_owned).chain(inner).collect()
            }
        })
        .boxed()
}

fn wrapped() -> BoxedStrategy<Vec<String>> {
    let plain = (denied_name(), prop::collection::vec("[a-z./-]{0,6}", 0..3));
    let plain = plain.prop_map(|(name, args)| std::iter::once(name).chain(args).collect::<Vec<_>>()).boxed();
    let once = wrap(plain.clone());
    let twice = wrap(once.clone());
    let thrice = wrap(twice.clone());
    prop_oneof![plain, once, twice, thrice].boxed()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn no_disguise_of_a_denied_program_is_ever_allowed(argv in wrapped()) {
        let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
        prop_assert!(refused(&argv), "{:?}", argv);
    }

    #[test]
    fn any_command_line_is_survived(argv in prop::collection::vec(
        prop_oneof![
            "\\PC{0,8}",
            prop::sample::select(vec!["sh", "-c", "env", "-S", "xargs", "find", "-exec", "--", "-n", "rm", "cat", "'", "$("])
                .prop_map(str::to_owned),
        ], 1..8)
    ) {
        let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
        let judged = refused(&argv);
        if is_denied(argv[0]) {
            prop_assert!(judged, "{}", base_name(argv[0]));
        }
    }

    #[test]
    fn a_command_that_only_reads_is_one_plain_command(
        program in prop::sample::select(vec!["cat", "head", "grep", "ls", "du", "cut", "wc", "/proc/self/root/bin/cat"]),
        args in prop::collection::vec(
            prop_oneof![
                "-{0,2}[a-zA-Z0-9]{0,3}",
                prop::sample::select(vec!["rm", "-n", "5", "--lines", "--", "a.txt", "-exec", "$(rm x)"]).prop_map(str::to_owned),
            ], 0..4),
    ) {
        let exec = exec(&[&[program.to_owned()], &args[..]].concat());
        if only_reads(&exec.command, &exec.args) {
            let seen = Seen::of_command(&exec).unwrap();
            prop_assert_eq!(seen.programs().count(), 1, "{:?}", exec);
            prop_assert!(seen.is_plain_to(args.len() + 1), "{:?}", exec);
        }
    }
}
