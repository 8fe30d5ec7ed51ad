//! P5: a profile's rules for paths, while links and directories are exchanged beneath the names that a call has.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use harness::files::contents;
use harness::v1::{self, operation::Kind as Operation, result::Kind as Answer};
use harness::{Daemon, Setup, calls, reason, requests};
use rustix::fs::{CWD, RenameFlags, renameat_with};

const SECRET: &str = "the secret";

const PROFILE: &str = r#"
roles: {director: {allow: '*'}}
profiles:
  p:
    workspace: read-write
    operations: {read: allow, list: allow, glob: allow, grep: allow}
    paths: [{path: ["secrets/**"], access: read, decision: deny, justification: Keys are kept from agents.}]
    rate_limits:
      operations: {default: {minute: unlimited, hour: unlimited, day: unlimited}}
      run: {minute: unlimited, hour: unlimited, day: unlimited}
      principal: {minute: unlimited, hour: unlimited, day: unlimited}
"#;

#[tokio::test(flavor = "multi_thread")]
async fn p5_no_exchange_of_a_link_shows_a_file_that_a_rule_denies() {
    let setup = Setup { policy: vec![("p.yaml", PROFILE.to_owned())], ..Default::default() };
    let daemon = Daemon::start_with(setup).await;
    let workspace = daemon.workspace("w", &[("dir/file", "open\n"), ("secrets/file", SECRET)]);
    symlink("secrets", workspace.join("link")).unwrap();
    symlink("dir/file", workspace.join("to_open")).unwrap();
    symlink("secrets/file", workspace.join("to_secret")).unwrap();
    let request = v1::CreateRunRequest { role: "director".into(), ..requests::bind("p", &workspace) };
    let mut run = daemon.run_on(request).await;

    let stop = Arc::new(AtomicBool::new(false));
    let swapping = {
        let (stop, workspace) = (Arc::clone(&stop), workspace.clone());
        std::thread::spawn(move || {
            let at = |name: &str| workspace.join(name);
            let mut exchanges = 0_u64;
            while !stop.load(Ordering::Relaxed) {
                // `dir` is the directory now, and now a link to the other; `to_open` leads to one file, and now to the other.
                for [one, other] in [["dir", "link"], ["to_open", "to_secret"]] {
                    renameat_with(CWD, at(one), CWD, at(other), RenameFlags::EXCHANGE).unwrap();
                }
                exchanges += 1;
            }
            exchanges
        })
    };
    let (mut shown, mut refused) = (0, 0);
    let rounds = effort::cases(400, 10_000);
    for round in 0..rounds {
        let operation = match round % 6 {
            0 => calls::read("dir/file"),
            1 => calls::read("to_open"),
            2 => calls::grep("dir", "e"),
            3 => calls::grep(".", "e"),
            4 => Operation::Glob(v1::GlobRequest { pattern: "dir/*".into(), ..Default::default() }),
            _ => calls::list("dir"),
        };
        let answer = run.call(operation).await.unwrap();
        let text = format!("{answer:?}");
        assert!(!text.contains(SECRET), "{text}");
        match answer.into_kind() {
            Some(Answer::Read(read)) => {
                assert_eq!(read.content, "open\n");
                shown += 1;
            }
            Some(Answer::List(list)) => {
                assert!(list.entries.iter().all(|entry| entry.size_bytes == 5), "{list:?}");
            }
            Some(_) => {}
            None => refused += u32::from(text.contains("PERMISSION_DENIED")),
        }
        if round % 20 == 0 {
            match run.download_archive("dir").await {
                Ok(packed) => assert!(contents(&packed.data).iter().all(|file| file != SECRET.as_bytes())),
                Err(status) => assert_ne!(reason(&status), "INTERNAL", "{status:?}"),
            }
        }
    }
    stop.store(true, Ordering::Relaxed);
    assert!(swapping.join().unwrap() > 1_000);
    assert!(shown > 0 && refused > 0, "{shown} reads got through and {refused} did not: there was no race");
    assert_eq!(fs::read_to_string(workspace.join("secrets/file")).unwrap(), SECRET);
}
