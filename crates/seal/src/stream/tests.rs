use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use proptest::prelude::*;

use super::{BLOCK, PIECE, Read, StreamKey, Tail, plain_length, sealed_length};

const PLACE: &str = "run call stdout";

fn key(byte: u8) -> StreamKey {
    StreamKey::from_bytes([byte; 32])
}

fn file(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path).unwrap()
}

/// All kinds of bytes, no two pieces alike.
fn noise(length: usize) -> Vec<u8> {
    (0..length).map(|at| ((at * 2_654_435_761) >> 11).to_le_bytes()[0]).collect()
}

/// Writes a stream in portions of these lengths, and ends it.
fn ended(directory: &Path, portions: &[usize]) -> (File, Vec<u8>) {
    let file = file(&directory.join("stream"));
    let (mut tail, mut all) = (Tail::default(), Vec::new());
    for portion in portions {
        let data = noise(all.len() + portion).split_off(all.len());
        let (taken, result) = key(1).append(PLACE, &file, &mut tail, &data);
        result.unwrap();
        assert_eq!(taken, *portion as u64);
        all.extend(data);
        assert_eq!(tail.length(), all.len() as u64);
        assert_eq!(file.metadata().unwrap().len(), sealed_length(tail.length()));
    }
    key(1).end(PLACE, &file, &tail).unwrap();
    (file, all)
}

fn whole(key: &StreamKey, file: &File) -> std::io::Result<Read> {
    key.read(PLACE, file, 0, usize::MAX)
}

/// The file is not taken for the stream that was written and ended.
fn is_found(file: &File, all: &[u8], case: &str) {
    match whole(&key(1), file) {
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::InvalidData, "{case}"),
        Ok(read) => {
            assert!(!read.ended, "{case}: taken for whole");
            assert!(all.starts_with(&read.data), "{case}: other bytes");
        }
    }
}

fn portions() -> impl Strategy<Value = Vec<usize>> {
    let piece = usize::try_from(PIECE).unwrap();
    let length = prop_oneof![1..80_usize, piece - 2..piece + 3, 1..3 * piece, Just(2 * piece)];
    proptest::collection::vec(length, 1..6)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_stream_in_any_portions_is_read_from_any_offset(portions in portions(), offset in 0..20_000_u64, most in 0..9_000_usize) {
        let directory = tempfile::tempdir().unwrap();
        let (file, all) = ended(directory.path(), &portions);
        let read = key(1).read(PLACE, &file, offset, most).unwrap();
        let from = usize::try_from(offset).unwrap().min(all.len());
        let until = (from + most).min(all.len());
        prop_assert_eq!(read, Read { data: all[from..until].to_vec(), length: all.len() as u64, ended: true });
        prop_assert_eq!(plain_length(file.metadata().unwrap().len()), all.len() as u64);
    }

    #[test]
    fn any_cut_and_any_changed_bit_is_found(portions in portions(), at in any::<proptest::sample::Index>(), bit in 0..8_u8) {
        let directory = tempfile::tempdir().unwrap();
        let (file, all) = ended(directory.path(), &portions);
        let length = file.metadata().unwrap().len();
        let at = at.index(usize::try_from(length).unwrap()) as u64;
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ (1 << bit)], at).unwrap();
        is_found(&file, &all, &format!("bit {bit} of byte {at}"));
        file.write_all_at(&byte, at).unwrap();
        prop_assert!(whole(&key(1), &file).unwrap().ended);
        file.set_len(at).unwrap();
        is_found(&file, &all, &format!("cut at {at}"));
    }

    #[test]
    fn swapped_doubled_and_missing_pieces_are_found(pieces in 3..8_u64, one in 0..7_u64, other in 0..7_u64) {
        let (one, other) = (one % pieces, other % pieces);
        prop_assume!(one != other);
        let directory = tempfile::tempdir().unwrap();
        let (file, all) = ended(directory.path(), &[usize::try_from(pieces * PIECE).unwrap()]);
        let block = |number: u64| {
            let mut bytes = vec![0; usize::try_from(BLOCK).unwrap()];
            file.read_exact_at(&mut bytes, number * BLOCK).unwrap();
            bytes
        };
        let (first, second) = (block(one), block(other));
        file.write_all_at(&second, one * BLOCK).unwrap();
        is_found(&file, &all, "doubled");
        file.write_all_at(&first, other * BLOCK).unwrap();
        is_found(&file, &all, "swapped");
        file.write_all_at(&first, one * BLOCK).unwrap();
        file.write_all_at(&second, other * BLOCK).unwrap();
        prop_assert!(whole(&key(1), &file).unwrap().ended);
        let following: Vec<_> = (one + 1..pieces).map(block).collect();
        file.write_all_at(&following.concat(), one * BLOCK).unwrap();
        file.set_len((pieces - 1) * BLOCK).unwrap();
        is_found(&file, &all, "missing");
    }
}

#[test]
fn a_piece_of_another_context_key_or_version_is_found() {
    let directory = tempfile::tempdir().unwrap();
    let (file, all) = ended(directory.path(), &[10_000]);
    assert!(key(1).read("run call stderr", &file, 0, 10).is_err());
    assert!(whole(&key(2), &file).is_err());
    // One piece of another stream among those of this one.
    let other = self::file(&directory.path().join("other"));
    let mut tail = Tail::default();
    key(1).append("run other stdout", &other, &mut tail, &all).1.unwrap();
    let mut piece = vec![0; usize::try_from(BLOCK).unwrap()];
    other.read_exact_at(&mut piece, 0).unwrap();
    file.write_all_at(&piece, 0).unwrap();
    is_found(&file, &all, "a piece of another stream");
    // Another version.
    let (file, all) = ended(directory.path(), &[10_000]);
    file.write_all_at(&[1], BLOCK).unwrap();
    is_found(&file, &all, "another version");
}

#[test]
fn an_earlier_tail_does_not_count_as_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let file = file(&directory.path().join("stream"));
    let mut tail = Tail::default();
    key(1).append(PLACE, &file, &mut tail, b"early").1.unwrap();
    let mut early = vec![0; usize::try_from(sealed_length(5)).unwrap()];
    file.read_exact_at(&mut early, 0).unwrap();
    key(1).append(PLACE, &file, &mut tail, b" and late").1.unwrap();
    key(1).end(PLACE, &file, &tail).unwrap();
    file.set_len(early.len() as u64).unwrap();
    file.write_all_at(&early, 0).unwrap();
    is_found(&file, b"early and late", "an earlier tail");
}

#[test]
fn a_writer_continues_after_a_lost_one_and_reuses_no_nonce() {
    let directory = tempfile::tempdir().unwrap();
    let file = file(&directory.path().join("stream"));
    let mut tail = Tail::default();
    let data = noise(9_000);
    key(1).append(PLACE, &file, &mut tail, &data).1.unwrap();
    let block = |file: &File| {
        let mut bytes = vec![0; usize::try_from(sealed_length(9_000 % PIECE)).unwrap()];
        file.read_exact_at(&mut bytes, 2 * BLOCK).unwrap();
        bytes
    };
    let before = block(&file);
    // The last write was torn: the piece that it began goes.
    file.set_len(sealed_length(9_000) - 1).unwrap();
    assert_eq!(
        whole(&key(1), &file).unwrap(),
        Read { data: data[..8_108].to_vec(), length: 2 * PIECE, ended: false }
    );
    let mut tail = key(1).resume(PLACE, &file).unwrap();
    assert_eq!((tail.length(), file.metadata().unwrap().len()), (2 * PIECE, 2 * BLOCK));
    key(1).append(PLACE, &file, &mut tail, &data[8_108..]).1.unwrap();
    assert_ne!(block(&file), before, "the same bytes at the same offset");
    let tail = key(1).resume(PLACE, &file).unwrap();
    key(1).end(PLACE, &file, &tail).unwrap();
    assert_eq!(whole(&key(1), &file).unwrap(), Read { data, length: 9_000, ended: true });
}

#[test]
fn failed_write_ends_the_stream_at_the_last_accepted_byte() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("stream");
    let file = file(&path);
    let mut tail = Tail::default();
    key(1).append(PLACE, &file, &mut tail, b"kept").1.unwrap();
    let reading = File::open(&path).unwrap();
    let (taken, result) = key(1).append(PLACE, &reading, &mut tail, &noise(9_000));
    assert!(taken == 0 && result.is_err(), "an error, and no garbage");
    assert_eq!(whole(&key(1), &file).unwrap().data, b"kept");
    key(1).end(PLACE, &file, &tail).unwrap();
    assert_eq!(whole(&key(1), &file).unwrap(), Read { data: b"kept".to_vec(), length: 4, ended: true });
}

#[test]
fn a_whole_content_is_neither_cut_nor_moved() {
    let sealed = key(1).seal_whole(PLACE, b"content").unwrap();
    assert_eq!(key(1).unseal_whole(PLACE, &sealed).unwrap(), b"content");
    assert!(key(1).unseal_whole("other", &sealed).is_err());
    assert!((0..sealed.len()).all(|at| key(1).unseal_whole(PLACE, &sealed[..at]).is_err()));
    let tempdir = tempfile::tempdir().unwrap();
    let file = file(&tempdir.path().join("stream"));
    key(1).append(PLACE, &file, &mut Tail::default(), b"content").1.unwrap();
    let piece = std::fs::read(tempdir.path().join("stream")).unwrap();
    assert!(key(1).unseal_whole(PLACE, &piece).is_err(), "a piece that is not the last");
}
