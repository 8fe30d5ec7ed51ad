//! Reading through frames: that each operation arrives at its function, in this run's mounts.

use std::fs;
use std::os::unix::fs::symlink;

use jail::SandboxPath;
use operations::{
    Bounds, Glob, Grep, List, OpResult, Operation, Read, ReadResult, Reason, ToolFailure, Write,
};

use tokio_util::sync::CancellationToken;
use worker_protocol::convert::Reply;

use crate::harness::Guest;

fn read(path: &str) -> Operation {
    let path = SandboxPath::parse(path).unwrap();
    Operation::Read(Read::new(path))
}

async fn content(guest: &Guest, path: &str) -> Result<ReadResult, ToolFailure> {
    match guest.call(read(path)).await? {
        Reply::Result(OpResult::Read(result)) => Ok(result),
        other => panic!("not of read: {other:?}"),
    }
}

#[tokio::test]
async fn files_of_every_mount_are_read() {
    let guest = Guest::start().await;
    fs::write(guest.project().join("a"), "one\ntwo\n").unwrap();
    fs::write(guest.project().join("../state/b"), "three").unwrap();
    let result = content(&guest, "@project/a").await.unwrap();
    assert_eq!(
        (result.content.as_str(), result.total_lines, result.path.as_str()),
        ("one\ntwo\n", 2, "@project/a")
    );
    assert_eq!(content(&guest, "@state/b").await.unwrap().content, "three");
    assert_eq!(content(&guest, "gone").await.unwrap_err().reason, Reason::NotFound);
    assert_eq!(content(&guest, "@pkg/a").await.unwrap_err().reason, Reason::SandboxViolation);
}

#[tokio::test]
async fn an_outcome_that_no_frame_holds_fails_its_call_and_not_the_guest() {
    let guest = Guest::start().await;
    let bounds = Bounds { max_read_bytes: 8 << 20, ..Bounds::default() };
    for size in [4 << 20, 5 << 20, (4 << 20) - 1024, (4 << 20) - 4096] {
        fs::write(guest.project().join("a"), "x".repeat(size)).unwrap();
        let done = guest.finish(read("a"), bounds.clone(), None, CancellationToken::new()).await.unwrap();
        match done.outcome {
            Ok(Reply::Result(OpResult::Read(read))) => {
                assert!(read.content.len() == size && size + 4096 <= 4 << 20);
            }
            outcome => assert_eq!(outcome.unwrap_err().reason, Reason::ReadLimit, "{size}"),
        }
    }
    assert!(content(&guest, "a").await.unwrap().truncated, "it serves on");
}

#[tokio::test]
async fn directories_are_listed_and_searched() {
    let guest = Guest::start().await;
    fs::create_dir(guest.project().join("src")).unwrap();
    fs::write(guest.project().join("src/a.rs"), "fn main() {}\nlet needle = 1;\n").unwrap();
    fs::write(guest.project().join("b.txt"), "needle\n").unwrap();
    let path = SandboxPath::parse("@project").unwrap();

    let list = List { depth: 2, ..List::new(path.clone()) };
    let Ok(Reply::Result(OpResult::List(listed))) = guest.call(Operation::List(list)).await else {
        panic!("not listed")
    };
    let paths: Vec<_> = listed.entries.iter().map(|entry| entry.path.as_str()).collect();
    assert_eq!(paths, ["@project/b.txt", "@project/src", "@project/src/a.rs"]);

    let glob =
        Glob { path: path.clone(), pattern: "**/*.rs".to_owned(), include_ignored: false, max_results: 10 };
    let Ok(Reply::Result(OpResult::Glob(found))) = guest.call(Operation::Glob(glob)).await else {
        panic!("not found")
    };
    assert_eq!(found.paths, ["@project/src/a.rs"]);

    let grep = Grep::new(path, "needle");
    let Ok(Reply::Result(OpResult::Grep(found))) = guest.call(Operation::Grep(grep)).await else {
        panic!("not searched")
    };
    let places: Vec<_> = found.matches.iter().map(|found| (found.path.as_str(), found.line)).collect();
    assert_eq!(places, [("@project/b.txt", 1), ("@project/src/a.rs", 2)]);
}

#[tokio::test]
async fn outside_links_and_fifos_are_refused() {
    let guest = Guest::start().await;
    symlink("/etc/passwd", guest.project().join("out")).unwrap();
    symlink("/proc/self/environ", guest.project().join("environ")).unwrap();
    let fifo = guest.project().join("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    for path in ["out", "environ", "fifo"] {
        let refused = content(&guest, path).await.unwrap_err();
        assert_eq!(refused.reason, Reason::SandboxViolation, "{path}: {}", refused.message);
    }
}

#[tokio::test]
async fn many_reads_get_their_own_answers() {
    let guest = Guest::start().await;
    for i in 0..32 {
        fs::write(guest.project().join(format!("file{i}")), i.to_string().repeat(1000)).unwrap();
    }
    let guest = std::sync::Arc::new(guest);
    let reads: Vec<_> = (0..32)
        .map(|i| {
            let guest = std::sync::Arc::clone(&guest);
            tokio::spawn(async move { content(&guest, &format!("file{i}")).await.unwrap().content })
        })
        .collect();
    for (i, read) in reads.into_iter().enumerate() {
        assert_eq!(read.await.unwrap(), i.to_string().repeat(1000));
    }
}

#[tokio::test]
async fn writing_is_not_done_here() {
    let guest = Guest::start().await;
    let path = SandboxPath::parse("new").unwrap();
    let write = Write::new(path, "x");
    let refused = guest.call(Operation::Write(write)).await.unwrap_err();
    assert_eq!(refused.reason, Reason::InvalidArgument);
    assert!(!guest.project().join("new").exists());
}
