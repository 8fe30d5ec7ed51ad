use super::{Child, Index, entry};

/// An index of version 2 with these names, each with its stage.
fn index(names: &[(&[u8], u16)]) -> Vec<u8> {
    let mut bytes = b"DIRC\0\0\0\x02".to_vec();
    bytes.extend(u32::try_from(names.len()).unwrap().to_be_bytes());
    for (name, stage) in names {
        let start = bytes.len();
        bytes.extend([0; 60]);
        bytes.extend((stage << 12 | u16::try_from(name.len()).unwrap()).to_be_bytes());
        bytes.extend_from_slice(name);
        let end = start + ((bytes.len() - start + 8) & !7);
        bytes.resize(end, 0);
    }
    bytes.extend([0; 20]);
    bytes
}

#[test]
fn names_come_in_order_with_their_stages() {
    let names: [(&[u8], u16); 5] = [(b"a", 0), (b"b", 1), (b"b", 3), (b"b/c", 0), (b"d", 0)];
    let index = Index::parse(&index(&names)).unwrap();
    let read: Vec<_> =
        index.entries().iter().map(|entry| (index.name(entry), u16::from(entry.stage))).collect();
    assert_eq!(read, names);
    let children: Vec<_> = index
        .children(0..5, 0)
        .map(|child| match child {
            Child::File { name, entries } => (name, false, entries),
            Child::Directory { name, entries } => (name, true, entries),
        })
        .collect();
    let expected: [(&[u8], bool, _); 4] =
        [(b"a", false, 0..1), (b"b", false, 1..3), (b"b", true, 3..4), (b"d", false, 4..5)];
    assert_eq!(children, expected);
}

#[test]
fn what_cannot_be_is_refused() {
    for names in [
        &[(&b"b"[..], 0), (b"a", 0)][..],
        &[(b"a", 0), (b"a", 0)],
        &[(b"a", 2), (b"a", 1)],
        &[(b"../a", 0)],
        &[(b"/a", 0)],
        &[(b"a//b", 0)],
        &[(b".git/config", 0)],
        &[(b"a/.GIT/hooks", 0)],
        &[(b"", 0)],
    ] {
        assert!(Index::parse(&index(names)).is_err(), "{names:?}");
    }
}

#[test]
fn an_index_cut_or_changed_anywhere_is_read_or_refused() {
    let names: [(&[u8], u16); 3] = [(b"a", 0), (b"b/c", 0), (b"d", 0)];
    let mut whole = index(&names);
    let tree = b"TREE\0\0\0\x33\x003 1\n01234567890123456789b\x001 0\n01234567890123456789";
    let at = whole.len() - 20;
    whole.splice(at..at, tree.iter().copied());
    assert_eq!(whole[at + 8..whole.len() - 20].len(), 0x33);
    assert!(Index::parse(&whole).unwrap().tree.is_some_and(|tree| tree.child(b"b").is_some()));
    for end in 0..whole.len() {
        let _ = Index::parse(&whole[..end]);
        for value in [0, 1, 0x7f, 0xff] {
            let mut changed = whole.clone();
            changed[end] = value;
            let _ = Index::parse(&changed);
        }
    }
    assert!(Index::parse(&whole[..whole.len() - 60]).is_err());
}

#[test]
fn a_count_does_not_outgrow_the_file() {
    let mut bytes = index(&[(b"a", 0)]);
    bytes[8..12].copy_from_slice(&u32::MAX.to_be_bytes());
    assert!(Index::parse(&bytes).is_err());
    assert_eq!(entry::number(&[0, 0, 1, 0], 0), Some(256));
}
