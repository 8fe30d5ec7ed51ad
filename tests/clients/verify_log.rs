//! A second verifier, written from `docs/src/audit-format.md` alone in another language, says the same of every log.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use audit::{Against, Integrity, VerifierKey, verify_with};

#[path = "../../crates/audit/tests/damage/mutations.rs"]
#[allow(dead_code)] // the log's own test also asks which record is the first bad one
mod mutations;

use mutations::{Bench, Dice, KINDS, Shape, make};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/clients/verify_log.py");

/// What the script says of each directory, and the code that it ends with.
fn theirs(keys: &[VerifierKey], logs: &[PathBuf]) -> (Vec<String>, Option<i32>) {
    let mut command = Command::new("python3");
    command.arg(SCRIPT);
    for key in keys {
        command.arg("--key").arg(key.to_string());
    }
    let output = command.args(logs).output().expect("python3 is part of the set-up");
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    (String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect(), output.status.code())
}

/// What we say, in its words.
fn ours(keys: &[VerifierKey], log: &Path) -> String {
    let against = Against { keys: keys.to_vec(), ..Against::default() };
    let report = verify_with(log, against, &mut |_| ()).unwrap();
    let last = report.head.map_or(0, |head| head.sequence);
    match report.integrity {
        Integrity::Intact if report.unvouched().is_some() => format!("unvouched {last}"),
        Integrity::Intact => format!("intact {last} {}", report.checkpoints),
        Integrity::Broken(broken) => format!("broken {}", broken.sequence),
    }
}

#[test]
fn verifier_script_has_at_most_150_lines() {
    assert!(std::fs::read_to_string(SCRIPT).unwrap().lines().count() <= 150);
}

#[test]
fn verifiers_agree_on_good_and_damaged_logs() {
    let scratch = tempfile::tempdir().unwrap();
    let base = Shape { records: 400, segment_bytes: 8_000, checkpoint_every: 50, rotate: false, tidy: false };
    let shapes = [
        base,
        Shape { rotate: true, ..base },
        Shape { tidy: true, ..base },
        Shape { rotate: true, tidy: true, ..base },
    ];
    let mut dice = Dice(20_261_122);
    let (mut logs, mut what) = (Vec::new(), Vec::new());
    for (at, shape) in shapes.into_iter().enumerate() {
        let dir = scratch.path().join(format!("log-{at}"));
        let covered = make(&dir, shape);
        let bench = Bench::new(&dir, covered);
        logs.push(dir);
        what.push(format!("{at}: intact"));
        for round in 0..100 {
            let mutation = bench.mutate(round % KINDS, &mut dice);
            let mutated = scratch.path().join(format!("log-{at}-{round}"));
            bench.write(&mutation, &mutated);
            logs.push(mutated);
            what.push(format!("{at}: {}", mutation.what));
        }
    }
    let (verdicts, code) = theirs(&[], &logs);
    assert_eq!(code, Some(0), "nobody gave a key");
    assert_eq!(verdicts.len(), logs.len());
    let mut differences = String::new();
    for ((log, what), verdict) in logs.iter().zip(&what).zip(&verdicts) {
        let own = ours(&[], log);
        if own != *verdict {
            writeln!(differences, "{what}: we say {own}, it says {verdict}").unwrap();
        }
    }
    assert_eq!(differences, "");
    let broken = verdicts.iter().filter(|verdict| verdict.starts_with("broken")).count();
    println!("{} logs, {broken} of them damaged: agreed on every one", logs.len());
    assert!(broken >= 390 && verdicts[0].starts_with("intact"), "{broken}");
}

#[test]
fn verifiers_trust_the_same_keys() {
    let scratch = tempfile::tempdir().unwrap();
    let base = Shape { records: 120, segment_bytes: 8_000, checkpoint_every: 50, rotate: true, tidy: true };
    let (one, other) = (scratch.path().join("one"), scratch.path().join("other"));
    make(&one, base);
    make(&other, base);
    let key = |log: &Path| -> VerifierKey {
        let report = verify_with(log, Against::default(), &mut |_| ()).unwrap();
        report.keys.last().unwrap().parse().unwrap()
    };
    let keys = [key(&one), key(&other)];
    for given in [&keys[..1], &keys[1..], &keys[..]] {
        let logs = [one.clone(), other.clone()];
        let own: Vec<_> = logs.iter().map(|log| ours(given, log)).collect();
        assert_eq!(theirs(given, &logs).0, own);
    }
}

#[test]
fn verifiers_do_not_accept_an_emptied_log() {
    let scratch = tempfile::tempdir().unwrap();
    let log = scratch.path().join("log");
    make(
        &log,
        Shape { records: 40, segment_bytes: 80_000, checkpoint_every: 10, rotate: false, tidy: false },
    );
    let report = verify_with(&log, Against::default(), &mut |_| ()).unwrap();
    let keys: Vec<VerifierKey> = report.keys.iter().map(|key| key.parse().unwrap()).collect();
    assert_eq!(theirs(&keys, std::slice::from_ref(&log)), (vec![ours(&keys, &log)], Some(0)));

    std::fs::remove_dir_all(log.join("checkpoints")).unwrap();
    std::fs::write(log.join("00000000000000000001.jsonl"), "").unwrap();
    let logs = std::slice::from_ref(&log);
    assert_eq!(ours(&keys, &log), "unvouched 0");
    assert_eq!(theirs(&keys, logs), (vec!["unvouched 0".to_owned()], Some(6)));
    assert_eq!(theirs(&[], logs), (vec!["unvouched 0".to_owned()], Some(0)));
}
