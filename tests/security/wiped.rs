//! A5: the secret variables of a run that has ended are in the daemon's memory no longer.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};

use harness::process::script;
use harness::v1::CreateRunRequest;
use harness::{Daemon, calls, requests};

/// Shortest piece that is looked for.
const PIECE: usize = 16;
/// Every piece of [`PIECE`] bytes has a whole block of so many.
const BLOCK: usize = PIECE / 2;
/// What ends with a run ends soon after it.
const AFTERWARDS: Duration = Duration::from_secs(60);

/// Places in a process's memory where a piece of a value is, each with the piece.
fn found(pid: u32, value: &[u8]) -> Vec<String> {
    let memory = File::open(format!("/proc/{pid}/mem")).unwrap();
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let mut found = Vec::new();
    for line in maps.lines().filter(|line| line.split(' ').nth(1).unwrap().starts_with("rw")) {
        let (start, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
        let [start, end] = [start, end].map(|address| u64::from_str_radix(address, 16).unwrap());
        let mut content = vec![0; usize::try_from(end - start).unwrap()];
        // A mapping that has gone meanwhile holds nothing.
        let _ = memory.read_exact_at(&mut content, start);
        for (at, piece) in pieces(&content, value) {
            let name = line.rsplit(' ').next().unwrap();
            found.push(format!("{:x} in {start:x}-{end:x} {name}: {piece}", start + at as u64));
        }
    }
    found
}

/// Pieces of the value, each once, with their positions.
fn pieces(content: &[u8], value: &[u8]) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, block) in value.chunks_exact(BLOCK).enumerate() {
        let first = number * BLOCK;
        for at in memchr::memmem::find_iter(content, block) {
            let pairs = content[..at].iter().rev().zip(value[..first].iter().rev());
            let before = pairs.take_while(|(here, there)| here == there).count();
            let pairs = content[at..].iter().zip(&value[first..]);
            let after = pairs.take_while(|(here, there)| here == there).count();
            if before < BLOCK && before + after >= PIECE {
                let piece = &content[at - before..at + after];
                found.push((at - before, String::from_utf8(piece.to_vec()).unwrap()));
            }
        }
    }
    found
}

#[test]
fn a_piece_of_a_value_is_found_at_any_offset() {
    let value = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ+-";
    for start in 0..=value.len() - PIECE {
        let content = [b"....".as_slice(), &value[start..start + PIECE], b"....."].concat();
        assert_eq!(pieces(&content, value).len(), 1, "{start}");
        assert!(pieces(&content[..PIECE + 3], value).is_empty(), "{start}");
    }
    let whole = String::from_utf8(value.to_vec()).unwrap();
    assert_eq!(pieces(value, value), [(0, whole)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a5_the_secret_variables_of_a_run_that_has_ended_are_in_no_memory() {
    let mut random = [0; 32];
    File::open("/dev/urandom").unwrap().read_exact(&mut random).unwrap();
    let secret = hex::encode(random);
    let daemon = Daemon::start().await;
    let request = CreateRunRequest {
        secret_env: [("KEY".to_owned(), secret.clone())].into(),
        ..requests::managed("harness")
    };
    let mut run = daemon.run_on(request).await;
    // As the environment, in output, among arguments, in a file, in a failure and in what is on record.
    assert_eq!(run.exec(&["sh", "-c", "echo $KEY"]).await.stdout, format!("{secret}\n"));
    assert_eq!(
        run.ran(calls::shell(&format!("echo password={secret}; echo $KEY >&2"))).await.exit_code,
        Some(0)
    );
    run.ok(calls::write("settings", &format!("key = {secret}\n"))).await;
    run.ok(calls::read("settings")).await;
    run.fails(calls::read(&format!("no-such-file-{secret}"))).await;
    let process = run.start(script("echo $KEY; sleep 1000")).await.process_id;
    assert!(!process.is_empty());
    let kept = found(daemon.pid(), secret.as_bytes());
    assert!(!kept.is_empty(), "the search finds nothing while the run lives");
    println!("while the run lives: {} places", kept.len());

    run.stop().await;
    run.delete().await;
    // A connection that stays has in its buffers what came over it last.
    drop(run);
    let ended = Instant::now();
    loop {
        let left = found(daemon.pid(), secret.as_bytes());
        if left.is_empty() {
            println!("gone {:?} after the run", ended.elapsed());
            break;
        }
        assert!(ended.elapsed() < AFTERWARDS, "still there: {left:#?}");
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}
