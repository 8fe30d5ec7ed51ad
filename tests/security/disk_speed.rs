//! C4 at the disk's full speed, where no kernel holds a run to its quota: one command adds at most 512 MiB before it is ended.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use harness::v1::exec_result::EndedBy;
use harness::{Daemon, RunHandle, calls, dev_image, requests, v1};

const MIB: u64 = 1 << 20;
/// Bytes beyond its quota that a command may add before it is seen.
const BEYOND: u64 = 512 * MIB;
/// Files beyond it.
const FILES_BEYOND: u64 = 65_536;
const FILES: u64 = 10_000;

/// Sixteen writers. Each makes one file after the other, as large as a file of the run may be, in one of these ways.
const WRITERS: &str = r#"
import mmap, os, sys
way, size = sys.argv[1], int(sys.argv[2])
source = os.open("/workspace/source", os.O_RDWR | os.O_CREAT)
os.truncate(source, size)
nothing = mmap.mmap(-1, size)
writer = next((n for n in range(15) if os.fork() == 0), 15)
n = 0
while True:
    n += 1
    name = f"/workspace/{writer}-{n}"
    file = os.open(name, os.O_RDWR | os.O_CREAT)
    if way == "unlinked": os.unlink(name)
    elif way == "files": pass
    elif way == "mmap":
        os.truncate(file, size)
        pages = mmap.mmap(file, size)
        for at in range(0, size, 4096): pages[at] = 1
    elif way == "populate":
        os.truncate(file, size)
        mmap.mmap(file, size).madvise(23)
    left = size if way in ("write", "unlinked", "copy_file_range", "sendfile") else 0
    while left:
        if way == "copy_file_range": left -= os.copy_file_range(source, file, left, size - left)
        elif way == "sendfile": left -= os.sendfile(file, source, size - left, left)
        else: left -= os.write(file, memoryview(nothing)[:left])
    if way == "unlinked": os.dup(file)
    os.close(file)
"#;

/// Counts the bytes and files in the daemon's directories of the run.
fn has(daemon: &Daemon, run: &RunHandle) -> (u64, u64) {
    let places = ["runs", "workspaces", "roots"].map(|place| daemon.state_dir().join(place).join(run.id()));
    let (mut bytes, mut files) = (0, 0);
    for place in places {
        add(&place, &mut bytes, &mut files);
    }
    (bytes, files)
}

fn add(path: &Path, bytes: &mut u64, files: &mut u64) {
    let Ok(found) = fs::symlink_metadata(path) else { return };
    *bytes += found.blocks() * 512;
    *files += 1;
    for entry in fs::read_dir(path).into_iter().flatten() {
        add(&entry.unwrap().path(), bytes, files);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c4_command_exceeds_its_quota_only_by_a_bounded_amount() {
    let quota = u64::from(effort::cases(256, 1_024)) * MIB;
    let limits = v1::Limits { disk_bytes: quota, disk_files: FILES, ..Default::default() };
    let daemon = Daemon::start().await;
    let python = |way: &str| {
        let size = (quota - 4096).to_string();
        calls::exec(&["python3", "-c", WRITERS, way, &size])
    };
    let shell = |each: &str| {
        calls::shell(&format!(
            "head -c 50000000 /dev/zero >/tmp/source; \
             for w in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do \
             (n=0; while :; do n=$((n+1)); {each}; done) & done; wait"
        ))
    };
    let attacks = [
        ("write", python("write")),
        ("unlinked", python("unlinked")),
        ("mmap", python("mmap")),
        ("populate", python("populate")),
        ("copy_file_range", python("copy_file_range")),
        ("sendfile", python("sendfile")),
        ("files", python("files")),
        ("dd", shell("dd if=/dev/zero of=/state/$w-$n bs=1M count=200 2>/dev/null")),
        ("tar", shell("tar cf $w-$n -C /tmp source")),
    ];
    for (name, attack) in attacks {
        // The profile's deny list is off, which has `dd`.
        let request =
            v1::CreateRunRequest { image: dev_image(), limits: Some(limits), ..requests::managed("harness") };
        let mut run = daemon.run_on(request).await;
        let result = run.ran(attack).await;
        let (bytes, files) = has(&daemon, &run);
        eprintln!("{name}: {} MiB of {} in {files} files", bytes / MIB, quota / MIB);
        assert_eq!(result.ended_by(), EndedBy::DiskQuota, "{name}: {result:?}");
        assert!(bytes <= quota + BEYOND && files <= FILES + FILES_BEYOND, "{name}: {bytes} in {files}");
        run.stop().await;
        run.delete().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c4_space_cannot_be_allotted_where_no_kernel_counts_it() {
    let daemon = Daemon::start().await;
    let limits = v1::Limits { disk_bytes: 64 * MIB, ..Default::default() };
    let request =
        v1::CreateRunRequest { image: dev_image(), limits: Some(limits), ..requests::managed("open") };
    let mut run = daemon.run_on(request).await;
    let script = "for n in $(seq 400); do fallocate -l 60M $n && exit 9; done; \
                  python3 -c 'import os; os.posix_fallocate(os.open(\"whole\", os.O_CREAT | os.O_RDWR), 0, 1 << 20)'";
    let result = run.ran(calls::shell(script)).await;
    assert_eq!(result.exit_code, Some(0), "{result:?}");
    assert!(result.stderr.contains("Operation not supported"), "{result:?}");
    // The C library has written instead.
    let (bytes, _) = has(&daemon, &run);
    assert!((MIB..8 * MIB).contains(&bytes), "{bytes}");
}
