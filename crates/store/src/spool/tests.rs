use std::collections::HashSet;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use identity::{CallId, RunId};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use seal::StreamKey;
use tempfile::TempDir;
use tokio::time::Instant;

use super::Stream::{Stderr, Stdout};
use super::ledger::Key;
use super::{Bounds, Output, Piece, Spool, Stream, Unkept, WRITERS};

const WIDE: Bounds = Bounds { max_total: 1 << 30, min_free: 0 };
const MIB: usize = 1 << 20;
/// Bytes of a stream that take a MiB on the disk: a piece holds 4,054.
const FULL: usize = 256 * 4_054;

fn open(directory: &Path, bounds: Bounds, runs: &[RunId], calls: &[CallId]) -> Arc<Spool> {
    let runs: HashSet<_> = runs.iter().copied().collect();
    let key = StreamKey::from_bytes([7; 32]);
    Spool::open(directory.to_owned(), bounds, key, &runs, &calls.iter().copied().collect()).unwrap()
}

fn empty(bounds: Bounds) -> (TempDir, Arc<Spool>) {
    let directory = tempfile::tempdir().unwrap();
    let spool = open(directory.path(), bounds, &[], &[]);
    (directory, spool)
}

/// A file system of that size, for as long as the value lives.
struct Small(TempDir);

impl Small {
    fn new(options: &std::ffi::CStr) -> Self {
        let directory = tempfile::tempdir().unwrap();
        mount("none", directory.path(), "tmpfs", MountFlags::empty(), options).expect("tests run as root");
        Self(directory)
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        unmount(self.0.path(), UnmountFlags::DETACH).unwrap();
    }
}

/// All kinds of bytes, no two pieces alike.
fn noise(length: usize) -> Bytes {
    let mut state = 0x9e37_79b9_u32;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state.to_le_bytes()[1]
    };
    (0..length).map(|_| next()).collect()
}

async fn write(output: &Output, stream: Stream, from: usize, data: &Bytes) {
    for (i, piece) in data.chunks(64 * 1024).enumerate() {
        let offset = (from + i * 64 * 1024) as u64;
        output.put(stream, offset, data.slice_ref(piece)).await;
    }
}

/// A call that wrote so much to its standard output, and is over.
async fn finished(spool: &Arc<Spool>, run: RunId, length: usize) -> CallId {
    let call = CallId::new();
    let output = spool.output(run, call);
    write(&output, Stdout, 0, &noise(length)).await;
    output.finish().await;
    call
}

async fn kept(spool: &Arc<Spool>, run: RunId, call: CallId) -> [u64; 2] {
    let stdout = spool.read(run, call, Stdout, 0, 0).await.unwrap().kept;
    [stdout, spool.read(run, call, Stderr, 0, 0).await.unwrap().kept]
}

fn names(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        found.extend(if path.is_dir() { names(&path) } else { vec![path] });
    }
    found
}

#[tokio::test]
async fn each_stream_is_read_from_any_offset_while_it_grows_and_after() {
    let (directory, spool) = empty(WIDE);
    let (run, call) = (RunId::new(), CallId::new());
    let output = spool.output(run, call);
    assert!(names(directory.path()).is_empty(), "a call that writes nothing costs nothing");
    let (out, err) = (noise(3 * MIB), noise(1_000));
    write(&output, Stdout, 0, &out.slice(..MIB)).await;
    write(&output, Stderr, 0, &err).await;
    assert_eq!(output.kept(), [MIB as u64, 1_000]);
    let piece = spool.read(run, call, Stdout, 7, 10).await.unwrap();
    assert_eq!((&piece.data[..], piece.kept), (&out[7..17], MIB as u64));
    write(&output, Stdout, MIB, &out.slice(MIB..)).await;
    output.finish().await;
    let piece = spool.read(run, call, Stdout, 5, usize::MAX).await.unwrap();
    assert_eq!((piece.data == out[5..], piece.kept), (true, 3 * MIB as u64));
    assert_eq!(spool.read(run, call, Stderr, 990, 100).await.unwrap().data, err[990..]);
    for beyond in [1_000, 1_001, u64::MAX] {
        let piece = spool.read(run, call, Stderr, beyond, 100).await.unwrap();
        assert_eq!((piece.data, piece.kept), (vec![], 1_000));
    }
    assert_eq!(kept(&spool, run, CallId::new()).await, [0, 0]);

    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    let files = names(directory.path());
    assert_eq!(files.len(), 2);
    for file in files {
        assert_eq!((mode(&file), mode(file.parent().unwrap())), (0o600, 0o700));
    }
}

#[tokio::test]
async fn spool_is_encrypted_and_old_plain_output_is_removed() {
    let (directory, spool) = empty(WIDE);
    let (run, call) = (RunId::new(), CallId::new());
    let output = spool.output(run, call);
    let secret = b"a secret that a command printed, ".repeat(40);
    for (stream, from) in [(Stdout, 0), (Stderr, 0), (Stdout, secret.len())] {
        write(&output, stream, from, &Bytes::from(secret.clone())).await;
    }
    output.finish().await;
    let files: Vec<_> = names(directory.path()).iter().map(|path| std::fs::read(path).unwrap()).collect();
    assert_eq!(files.iter().map(Vec::len).sum::<usize>(), 3 * secret.len() + 2 * 42);
    for file in &files {
        assert!(!file.windows(6).any(|part| part == b"secret"));
        // Equal texts differ in each place.
        assert!(files.iter().filter(|other| other[..32] == file[..32]).count() == 1);
    }
    let long = files.iter().max_by_key(|file| file.len()).unwrap();
    assert_ne!(long[..secret.len()], long[secret.len()..]);
    for offset in [0, 1, 63, 64, 65, 1_000, 2_639] {
        let piece = spool.read(run, call, Stdout, offset, 100).await.unwrap();
        let at = usize::try_from(offset).unwrap();
        assert_eq!(
            piece.data,
            [&secret[..], &secret].concat()[at..].iter().take(100).copied().collect::<Vec<_>>()
        );
    }

    let open_one = directory.path().join(run.to_string()).join(format!("{call}.stdout"));
    std::fs::write(&open_one, &secret).unwrap();
    drop(spool);
    let spool = open(directory.path(), WIDE, &[run], &[call]);
    assert!(!open_one.exists());
    assert_eq!(kept(&spool, run, call).await, [2 * secret.len() as u64, secret.len() as u64]);
}

#[tokio::test]
async fn tampered_spool_is_detected_after_a_restart() {
    let (directory, spool) = empty(WIDE);
    let run = RunId::new();
    let [one, other] = [finished(&spool, run, 3 * 4096).await, finished(&spool, run, 3 * 4096).await];
    let lost = CallId::new();
    let output = spool.output(run, lost);
    write(&output, Stdout, 0, &noise(5_000)).await;
    drop((output, spool));

    let spool = open(directory.path(), WIDE, &[run], &[one, other, lost]);
    let read = |call| spool.files.read(Key { call, run }, 0, 0, usize::MAX);
    let path = |call: CallId| directory.path().join(run.to_string()).join(format!("{call}.stdout.pieces"));
    assert_eq!(read(one).unwrap(), (Piece { data: noise(3 * 4096).to_vec(), kept: 3 * 4096 }, true));
    let of_lost = Piece { data: noise(5_000).to_vec(), kept: 5_000 };
    assert_eq!(read(lost).unwrap(), (of_lost, false), "its daemon was lost: nothing marks the end");

    let whole = std::fs::read(path(one)).unwrap();
    std::fs::write(path(one), &whole[..2 * 4096]).unwrap();
    let (cut, ended) = read(one).unwrap();
    assert!(!ended && noise(3 * 4096).starts_with(&cut.data) && cut.kept == 2 * seal::PIECE);
    let mut changed = whole.clone();
    changed[100] ^= 1;
    std::fs::write(path(one), &changed).unwrap();
    assert!(spool.read(run, one, Stdout, 0, 10).await.is_err());
    assert_eq!(spool.read(run, one, Stdout, 4_100, 10).await.unwrap().data, noise(5_000)[4_100..4_110]);
    std::fs::write(path(other), &whole).unwrap();
    assert!(spool.read(run, other, Stdout, 0, 10).await.is_err(), "the file of another call");
}

#[tokio::test]
async fn restart_keeps_known_output_and_removes_the_rest() {
    let (directory, spool) = empty(WIDE);
    let (run, deleted) = (RunId::new(), RunId::new());
    let known = finished(&spool, run, 100).await;
    let unknown = finished(&spool, run, 100).await;
    finished(&spool, deleted, 100).await;
    std::fs::create_dir(directory.path().join("lost+found")).unwrap();
    drop(spool);

    let spool = open(directory.path(), WIDE, &[run], &[known]);
    assert_eq!(spool.read(run, known, Stdout, 0, 200).await.unwrap().data, noise(100));
    assert_eq!(kept(&spool, run, unknown).await, [0, 0]);
    assert_eq!(names(directory.path()).len(), 1);
    let mut left: Vec<_> =
        std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, [run.to_string(), "lost+found".to_owned()].map(std::ffi::OsString::from));
    // What an earlier daemon kept is the oldest, and counts.
    let smaller = Bounds { max_total: 32 << 10, min_free: 0 };
    let spool = open(directory.path(), smaller, &[run], &[known]);
    let next = finished(&spool, run, 20_000).await;
    assert_eq!((kept(&spool, run, known).await, kept(&spool, run, next).await), ([0, 0], [20_000, 0]));
}

#[tokio::test]
async fn the_oldest_finished_calls_are_evicted_and_no_running_one() {
    let (_directory, spool) = empty(Bounds { max_total: 4 << 20, min_free: 0 });
    let run = RunId::new();
    let (running, first) = (CallId::new(), RunId::new());
    let output = spool.output(run, running);
    write(&output, Stdout, 0, &noise(FULL)).await;
    let old = [finished(&spool, first, FULL).await, finished(&spool, first, FULL).await];
    let new = finished(&spool, run, 2 * FULL).await;
    assert_eq!(kept(&spool, first, old[0]).await, [0, 0]);
    assert_eq!(kept(&spool, first, old[1]).await, [FULL as u64, 0]);
    assert_eq!(kept(&spool, run, new).await, [2 * FULL as u64, 0], "the newest fits beside what is left");
    // All that is finished goes for the one that runs; then it is full, and says so by what it has.
    write(&output, Stdout, FULL, &noise(5 * FULL)).await;
    assert_eq!(output.kept(), [4 * FULL as u64, 0]);
    assert_eq!(kept(&spool, run, new).await, [0, 0]);
    output.put(Stderr, 0, noise(10)).await;
    output.finish().await;
    assert_eq!(kept(&spool, run, running).await, [4 * FULL as u64, 0]);
    let next = finished(&spool, run, 10).await;
    assert_eq!((kept(&spool, run, running).await, kept(&spool, run, next).await), ([0, 0], [10, 0]));
}

#[tokio::test]
async fn c4_a_full_disk_loses_only_spooled_output() {
    let small = Small::new(c"size=1m,mode=0700");
    let spool = open(small.0.path(), WIDE, &[], &[]);
    let run = RunId::new();
    let before = finished(&spool, run, 1_000).await;
    let (call, data) = (CallId::new(), noise(2 * MIB));
    let output = spool.output(run, call);
    let (_, mut live) = output.follow();
    let following = tokio::spawn(async move {
        let mut unkept = Vec::new();
        while let Some(piece) = live.next().await {
            live.has_taken();
            unkept.push(piece);
        }
        unkept
    });
    write(&output, Stdout, 0, &data).await;
    // Nothing is kept behind a gap, and no empty file is left.
    output.put(Stderr, 0, noise(10)).await;
    output.finish().await;
    let piece = spool.read(run, call, Stdout, 0, usize::MAX).await.unwrap();
    assert!((500_000..MIB as u64).contains(&piece.kept), "{}", piece.kept);
    assert!(piece.data == data[..piece.data.len()] && piece.data.len() as u64 == piece.kept);
    assert_eq!((output.kept(), names(small.0.path()).len()), ([piece.kept, 0], 2));
    assert_eq!(kept(&spool, run, before).await, [1_000, 0]);
    // Who follows has the rest all the same.
    let unkept = following.await.unwrap();
    let mut end = piece.kept;
    for Unkept { offset, data: more, .. } in unkept.iter().filter(|piece| piece.at == 0) {
        assert!(*offset <= end, "a gap at {end}");
        assert!(*more == data[usize::try_from(*offset).unwrap()..][..more.len()]);
        end = offset + more.len() as u64;
    }
    assert_eq!((end, unkept.last().map(|piece| piece.at)), (data.len() as u64, Some(1)));
    // With space again, the next call is kept.
    spool.remove_run(run).await;
    let next = finished(&spool, run, 500_000).await;
    assert_eq!(kept(&spool, run, next).await, [500_000, 0]);
}

#[tokio::test]
async fn c4_a_disk_without_inodes_loses_only_spooled_output() {
    let small = Small::new(c"size=1m,nr_inodes=3,mode=0700");
    let spool = open(small.0.path(), WIDE, &[], &[]);
    let run = RunId::new();
    let calls = [finished(&spool, run, 10).await, finished(&spool, run, 10).await];
    assert_eq!((kept(&spool, run, calls[0]).await, kept(&spool, run, calls[1]).await), ([10, 0], [0, 0]));
}

#[tokio::test]
async fn the_spool_leaves_the_reserved_space_of_the_disk() {
    let small = Small::new(c"size=4m,mode=0700");
    let spool = open(small.0.path(), Bounds { max_total: 1 << 30, min_free: 3 << 20 }, &[], &[]);
    let run = RunId::new();
    let first = finished(&spool, run, MIB / 2).await;
    let second = finished(&spool, run, MIB - 64 * 1024).await;
    assert_eq!(kept(&spool, run, first).await, [0, 0], "the oldest goes");
    assert_eq!(kept(&spool, run, second).await, [(MIB - 64 * 1024) as u64, 0]);
    // Somebody else fills it: what is finished does not help.
    std::fs::write(small.0.path().join("other"), noise(3 * MIB)).unwrap();
    let third = finished(&spool, run, 10).await;
    assert_eq!(kept(&spool, run, third).await, [0, 0]);
    assert_eq!(names(small.0.path()).len(), 1);
}

#[tokio::test]
async fn a_failing_disk_loses_only_spooled_output() {
    let (directory, spool) = empty(WIDE);
    let run = RunId::new();
    let (call, other) = (CallId::new(), RunId::new());
    let output = spool.output(run, call);
    write(&output, Stdout, 0, &noise(10)).await;
    std::fs::remove_dir_all(directory.path()).unwrap();
    let lost = finished(&spool, other, 10).await;
    assert_eq!(kept(&spool, other, lost).await, [0, 0]);
    std::fs::create_dir(directory.path()).unwrap();
    let next = finished(&spool, other, 10).await;
    assert_eq!(kept(&spool, other, next).await, [10, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_does_not_answer_holds_a_call_back_once() {
    let (_directory, spool) = empty(WIDE);
    let run = RunId::new();
    let output = spool.output(run, CallId::new());
    let hung = spool.writers.clone().acquire_many_owned(WRITERS.try_into().unwrap()).await.unwrap();
    let began = Instant::now();
    for (stream, offset) in [(Stdout, 0), (Stdout, 10), (Stderr, 0)] {
        output.put(stream, offset, noise(10)).await;
    }
    assert_eq!(began.elapsed(), super::output::PATIENCE);
    output.finish().await;
    drop(hung);
    assert_eq!(output.kept(), [0, 0]);
    let next = finished(&spool, run, 10).await;
    assert_eq!(kept(&spool, run, next).await, [10, 0]);
}

#[tokio::test]
async fn the_spool_of_a_deleted_run_is_removed() {
    let (directory, spool) = empty(WIDE);
    let (run, other) = (RunId::new(), RunId::new());
    finished(&spool, run, 10).await;
    let stays = finished(&spool, other, 10).await;
    spool.remove_run(run).await;
    spool.remove_run(run).await;
    assert!(!directory.path().join(run.to_string()).exists());
    assert_eq!(kept(&spool, other, stays).await, [10, 0]);
}
