//! A log of more than 5,000 records, damaged in hundreds of ways, and in more than a thousand with COFFERDAM_LONG: each is
//! found and the first bad record named.

#![allow(clippy::unwrap_used)]

#[path = "damage/mutations.rs"]
mod mutations;

use cofferdam_audit as audit;

use audit::{Integrity, verify};
use mutations::{Bench, Dice, KINDS, Shape, make};

const SHAPE: Shape =
    Shape { records: 6_000, segment_bytes: 60_000, checkpoint_every: 300, rotate: true, tidy: true };

fn damage(seed: u64, kinds: &[usize], rounds: usize) {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("log");
    let covered = make(&dir, SHAPE);
    let report = verify(&dir, &mut |_| ()).unwrap();
    assert!(report.is_intact(), "{:?}", report.integrity);
    assert!(report.records >= 4_900 && report.removed > 500 && report.checkpoints > 10, "{report:?}");
    assert_eq!((report.covered, report.keys.len()), (covered, 2));

    let bench = Bench::new(&dir, covered);
    let mut dice = Dice(seed);
    let mut found = [0; KINDS];
    let mut harmless = 0;
    for round in 0..rounds {
        let kind = kinds[round % kinds.len()];
        let mutation = bench.mutate(kind, &mut dice);
        let mutated = scratch.path().join("mutated");
        bench.write(&mutation, &mutated);
        match verify(&mutated, &mut |_| ()).unwrap().integrity {
            Integrity::Broken(broken) => {
                assert_eq!(broken.sequence, mutation.first_bad, "round {round}: {}: {broken}", mutation.what);
                found[kind] += 1;
            }
            // Bits of a compressed stream that mean nothing: the records are the same, to the byte.
            Integrity::Intact => {
                assert_eq!(kind, 10, "round {round}: not found: {}", mutation.what);
                harmless += 1;
            }
        }
        std::fs::remove_dir_all(mutated).unwrap();
    }
    println!("{rounds} mutations, found by kind: {found:?}, without any effect on a record: {harmless}");
    assert!(harmless * 20 <= rounds, "{harmless}");
}

#[test]
fn edits_deletions_and_duplicates_are_found() {
    damage(1, &[0, 1, 2], effort::cases(90, 300) as usize);
}

#[test]
fn swaps_insertions_and_cuts_are_found() {
    damage(2, &[3, 4, 5], effort::cases(90, 300) as usize);
}

#[test]
fn rollbacks_and_forgeries_are_found() {
    damage(3, &[6, 7], effort::cases(70, 220) as usize);
}

#[test]
fn lost_swapped_and_spoilt_files_are_found() {
    damage(4, &[8, 9, 10, 11], effort::cases(90, 300) as usize);
}
