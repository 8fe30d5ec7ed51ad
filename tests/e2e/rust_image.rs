//! The image of `images/rust`, which is made for `tests/run.sh --long` alone.

use harness::v1::CreateRunRequest;
use harness::{Daemon, calls, requests, rust_image};

use crate::dev_image::gives_neither_rights_nor_secrets;

const MANIFEST: &str = "[package]\nname = \"dam\"\nversion = \"0.1.0\"\nedition = \"2021\"\n";
const SOURCE: &str = "//! A dam.\n\n/// Of two levels, the higher one.\n\
                      pub fn higher(a: u32, b: u32) -> u32 {\n    a.max(b)\n}\n\n\
                      #[test]\nfn the_higher_one_is_found() {\n    assert_eq!(higher(2, 3), 3);\n}\n";

#[tokio::test(flavor = "multi_thread")]
async fn a_crate_is_tested_and_linted_in_it() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[("Cargo.toml", MANIFEST), ("src/lib.rs", SOURCE)]);
    let request = CreateRunRequest { image: rust_image(), ..requests::bind("build", &workspace) };
    let mut run = daemon.run_on(request).await;
    let tested = run.exec(&["cargo", "test", "--offline"]).await;
    assert_eq!(tested.exit_code, Some(0), "{}", tested.stderr);
    assert!(tested.stdout.contains("test the_higher_one_is_found ... ok"), "{}", tested.stdout);
    for argv in [&["cargo", "clippy", "--offline", "--", "-D", "warnings"][..], &["cargo", "fmt", "--check"]]
    {
        let result = run.exec(argv).await;
        assert_eq!(result.exit_code, Some(0), "{argv:?}: {}{}", result.stdout, result.stderr);
    }
}

/// On a writable root, as uid 1001: a program of the workspace, which needs no network, in `~/.cargo/bin`.
#[tokio::test(flavor = "multi_thread")]
async fn cargo_installs_into_the_home_and_the_program_runs_from_there() {
    let daemon = Daemon::start().await;
    let request = CreateRunRequest { image: rust_image(), ..requests::managed("harness") };
    let mut run = daemon.run_on(request).await;
    run.ok(calls::write("Cargo.toml", MANIFEST)).await;
    run.ok(calls::write("src/main.rs", "fn main() {\n    println!(\"a dam\");\n}\n")).await;
    for argv in [&["cargo", "install", "--path", ".", "--offline"][..], &["cargo", "install", "--list"]] {
        let result = run.exec(argv).await;
        assert_eq!(result.exit_code, Some(0), "{argv:?}: {}", result.stderr);
        assert!((result.stdout + &result.stderr).contains("dam v0.1.0"), "{argv:?}");
    }
    let used = run.ran(calls::shell("cd / && ~/.cargo/bin/dam && stat -c '%u %n' ~/.cargo/bin/dam && id -u"));
    assert_eq!(used.await.stdout, "a dam\n1001 /home/agent/.cargo/bin/dam\n1001\n");
    let gone = run.ran(calls::shell("cargo uninstall dam && ls ~/.cargo/bin")).await;
    assert_eq!((gone.exit_code, gone.stdout.as_str()), (Some(0), ""), "{}", gone.stderr);
}

#[test]
fn rust_image_gives_neither_rights_nor_secrets() {
    gives_neither_rights_nor_secrets(&rust_image());
}
