use std::fs::{self, File};
use std::io::{Read, Write as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;

use jail::{Access, Jail, Mount, Protection, Root, SandboxPath};
use tar::{Builder, EntryType, Header};

use super::*;

const MOST: u64 = 1 << 20;

struct Scene {
    top: tempfile::TempDir,
    inside: PathBuf,
    jail: Jail,
}

impl Scene {
    fn new() -> Self {
        let top = tempfile::tempdir().unwrap();
        let inside = top.path().join("inside");
        fs::create_dir(&inside).unwrap();
        let jail = Jail::new([Root::open(Mount::Project, &inside).unwrap()], Protection::default());
        Self { top, inside, jail }
    }

    fn unpack(&self, archive: &File) -> Result<Unpacked, ToolFailure> {
        unpack(&self.jail, &path("to"), archive, MOST, Protected::Refused)
    }

    fn is_empty(&self) -> bool {
        fs::read_dir(&self.inside).unwrap().next().is_none()
    }
}

fn path(text: &str) -> SandboxPath {
    SandboxPath::parse(text).unwrap()
}

/// A header with this very name, which `tar` would refuse to write.
fn header(kind: EntryType, name: &str, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
    header.set_entry_type(kind);
    header.set_size(size);
    header.set_mode(0o4755);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header.set_cksum();
    header
}

fn linked(kind: EntryType, name: &str, target: &str) -> Header {
    let mut header = header(kind, name, 0);
    header.as_old_mut().linkname[..target.len()].copy_from_slice(target.as_bytes());
    header.set_cksum();
    header
}

/// An archive of these headers, each with its content.
fn archive(members: &[(Header, &[u8])]) -> File {
    let mut builder = Builder::new(tempfile::tempfile().unwrap());
    for (header, content) in members {
        builder.append(header, *content).unwrap();
    }
    builder.into_inner().unwrap()
}

fn pax(records: &str) -> (Header, Vec<u8>) {
    let mut body = String::new();
    for record in records.split('\n') {
        // Its own length counts, and these have two digits.
        let length = record.len() + 4;
        assert!((10..100).contains(&length));
        body = format!("{body}{length} {record}\n");
    }
    (header(EntryType::XHeader, "pax", body.len() as u64), body.into_bytes())
}

#[test]
fn a_tree_is_unpacked_as_it_was_packed() {
    let scene = Scene::new();
    let from = scene.inside.join("from");
    let long = format!("{}/{}", "d".repeat(120), "f".repeat(140));
    fs::create_dir_all(from.join(&long).parent().unwrap()).unwrap();
    fs::create_dir(from.join("empty")).unwrap();
    fs::write(from.join(&long), "long").unwrap();
    fs::write(from.join("run.sh"), [0, 255, 10]).unwrap();
    fs::set_permissions(from.join("run.sh"), fs::Permissions::from_mode(0o750)).unwrap();
    symlink("../run.sh", from.join("empty/link")).unwrap();
    symlink("/etc/passwd", from.join("absolute")).unwrap();
    symlink("../outside", from.join("leaves")).unwrap();
    fs::create_dir(from.join(".git")).unwrap();
    fs::write(from.join(".git/config"), "secret").unwrap();

    let mut bytes = tempfile::tempfile().unwrap();
    let packed = pack(&scene.jail, &path("from"), Access::Read, MOST, &mut bytes).unwrap();
    // `.git` may be read, but not its configuration.
    assert_eq!(packed, Packed { entries: 6, bytes: 7, left_out: 3 });
    let refused = scene.unpack(&bytes).unwrap_err();
    assert_eq!((refused.reason, scene.inside.join("to").exists()), (Reason::SandboxViolation, false));
    let unpacked = unpack(&scene.jail, &path("to"), &bytes, MOST, Protected::LeftOut).unwrap();
    assert_eq!(unpacked, Unpacked { entries: 5, bytes: 7, left_out: 1 });

    let to = scene.inside.join("to");
    assert_eq!(fs::read(to.join(&long)).unwrap(), b"long");
    assert_eq!(fs::read(to.join("empty/link")).unwrap(), [0, 255, 10]);
    let mode = |name: &str| fs::metadata(to.join(name)).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode("run.sh"), to.join(".git").exists()), (0o750, false));
    // The same again: nothing is in the way of itself.
    assert_eq!(unpack(&scene.jail, &path("to"), &bytes, MOST, Protected::LeftOut).unwrap(), unpacked);
}

#[test]
fn a_hostile_member_is_refused_before_any_is_unpacked() {
    let file = || (header(EntryType::Regular, "first", 1), &b"x"[..]);
    let second = || (header(EntryType::Regular, "second", 1), &b"x"[..]);
    // Four times a third of what may be unpacked, three of them only names: each of the one before.
    let third = vec![0; 1 << 20];
    let third = &third[..(1 << 20) / 3];
    let many_names = |name: &str, original: &str| {
        vec![
            (header(EntryType::Regular, name, third.len() as u64), third),
            (linked(EntryType::Link, "l1", original), b""),
            (linked(EntryType::Link, "l2", "l1"), b""),
            (linked(EntryType::Link, "l3", "./l2"), b""),
        ]
    };
    let big = u64::MAX.to_string();
    let sized = pax("size=9");
    let sparse = pax("GNU.sparse.major=1");
    let escaping = pax("path=../x");
    for (member, reason) in [
        (vec![(header(EntryType::Regular, "../x", 1), &b"x"[..])], Reason::SandboxViolation),
        (vec![(header(EntryType::Regular, "a/../../x", 1), b"x")], Reason::SandboxViolation),
        (vec![(header(EntryType::Regular, "/etc/x", 1), b"x")], Reason::SandboxViolation),
        (vec![(header(EntryType::Directory, "..", 0), b"")], Reason::SandboxViolation),
        (vec![(header(EntryType::Regular, ".git/hooks/pre-commit", 1), b"x")], Reason::SandboxViolation),
        (vec![(header(EntryType::Regular, "node_modules/.bin/tsc", 1), b"x")], Reason::SandboxViolation),
        (vec![(linked(EntryType::Symlink, "l", "/etc"), b"")], Reason::SandboxViolation),
        (vec![(linked(EntryType::Symlink, "l", "../x"), b"")], Reason::SandboxViolation),
        (vec![(linked(EntryType::Symlink, "a/l", "../../x"), b"")], Reason::SandboxViolation),
        (vec![(linked(EntryType::Link, "l", "../x"), b"")], Reason::SandboxViolation),
        (vec![(linked(EntryType::Link, "l", "/etc/passwd"), b"")], Reason::SandboxViolation),
        (vec![(header(EntryType::Char, "d", 0), b"")], Reason::SandboxViolation),
        (vec![(header(EntryType::Block, "d", 0), b"")], Reason::SandboxViolation),
        (vec![(header(EntryType::Fifo, "d", 0), b"")], Reason::SandboxViolation),
        (vec![(header(EntryType::GNUSparse, "s", 0), b"")], Reason::InvalidArgument),
        (vec![(header(EntryType::new(b'Z'), "z", 0), b"")], Reason::InvalidArgument),
        (vec![(sized.0.clone(), &sized.1[..]), file()], Reason::InvalidArgument),
        (vec![(sparse.0.clone(), &sparse.1[..]), file()], Reason::InvalidArgument),
        (vec![(escaping.0.clone(), &escaping.1[..]), file()], Reason::SandboxViolation),
        (vec![(header(EntryType::GNULongName, "l", 4), b"../x"), file()], Reason::SandboxViolation),
        (vec![(header(EntryType::Regular, "big", MOST), &vec![0; 1 << 20][..])], Reason::WriteLimit),
        (many_names("big", "big"), Reason::WriteLimit),
        (many_names("./a//./big", "a/big"), Reason::WriteLimit),
        (vec![(linked(EntryType::Link, "l", "second"), b""), second()], Reason::InvalidArgument),
        (vec![(linked(EntryType::Link, "l", "l"), b"")], Reason::InvalidArgument),
        (
            vec![(linked(EntryType::Symlink, "s", "first"), b""), (linked(EntryType::Link, "l", "s"), b"")],
            Reason::InvalidArgument,
        ),
        (vec![(linked(EntryType::Link, ".", "first"), b"")], Reason::InvalidArgument),
    ] {
        let scene = Scene::new();
        let shown = format!(
            "{:?}",
            member.iter().map(|(header, _)| header.path_bytes().into_owned()).collect::<Vec<_>>()
        );
        let members = [vec![file()], member].concat();
        let refused = scene.unpack(&archive(&members)).unwrap_err();
        assert_eq!(refused.reason, reason, "{shown}: {}", refused.message);
        assert!(scene.is_empty(), "{shown} {big}");
    }
}

#[test]
fn an_archive_that_is_cut_off_or_no_archive_is_refused() {
    let scene = Scene::new();
    let whole = archive(&[(header(EntryType::Regular, "a", 1_000), &[7; 1_000])]);
    // Also where its only member ends.
    for length in [600, 1_400, 1_536] {
        let cut = tempfile::tempfile().unwrap();
        unpack::rewind(&whole).unwrap();
        std::io::copy(&mut (&whole).take(length), &mut &cut).unwrap();
        assert_eq!(scene.unpack(&cut).unwrap_err().reason, Reason::InvalidArgument, "{length}");
    }
    let mut text = tempfile::tempfile().unwrap();
    text.write_all(&[b'x'; 2_048]).unwrap();
    assert_eq!(scene.unpack(&text).unwrap_err().reason, Reason::InvalidArgument);
    assert!(scene.is_empty());
}

#[test]
fn a_link_of_the_archive_leads_no_other_member_anywhere() {
    let scene = Scene::new();
    let members = [
        (header(EntryType::Directory, "real", 0), &b""[..]),
        (linked(EntryType::Symlink, "way", "real"), b""),
        (header(EntryType::Regular, "way/x", 1), b"x"),
    ];
    let refused = scene.unpack(&archive(&members)).unwrap_err();
    assert_eq!(refused.reason, Reason::SandboxViolation, "{}", refused.message);
    assert_eq!(refused.details["entries_unpacked"], "2");
    assert!(!scene.inside.join("to/real/x").exists());
    // Nor one that was there before.
    let scene = Scene::new();
    symlink(scene.top.path(), scene.inside.join("to")).unwrap();
    assert!(scene.unpack(&archive(&[(header(EntryType::Regular, "x", 1), b"x")])).is_err());
    assert!(!scene.top.path().join("x").exists());
}

#[test]
fn set_id_bits_are_dropped_and_a_hard_link_is_a_copy() {
    let scene = Scene::new();
    let members = [(header(EntryType::Regular, "a", 1), &b"x"[..]), (linked(EntryType::Link, "b", "a"), b"")];
    assert_eq!(scene.unpack(&archive(&members)).unwrap(), Unpacked { entries: 2, bytes: 2, left_out: 0 });
    for name in ["a", "b"] {
        let file = scene.inside.join("to").join(name);
        assert_eq!(fs::read(&file).unwrap(), b"x");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o7777, 0o755);
    }
}

#[test]
fn a_hard_link_to_an_omitted_file_is_omitted_and_copies_no_existing_file() {
    let scene = Scene::new();
    let hooks = scene.inside.join("to/.git/hooks");
    fs::create_dir_all(&hooks).unwrap();
    fs::write(hooks.join("pre-commit"), "was there").unwrap();
    let members = [
        (header(EntryType::Regular, ".git/hooks/pre-commit", 1), &b"x"[..]),
        (linked(EntryType::Link, "copy", ".git/hooks/pre-commit"), b""),
    ];
    let archive = archive(&members);
    assert_eq!(scene.unpack(&archive).unwrap_err().reason, Reason::SandboxViolation);
    let unpacked = unpack(&scene.jail, &path("to"), &archive, MOST, Protected::LeftOut).unwrap();
    assert_eq!((unpacked.entries, unpacked.left_out), (0, 2));
    assert!(!scene.inside.join("to/copy").exists());
    assert_eq!(fs::read(hooks.join("pre-commit")).unwrap(), b"was there");
}

/// The same header for ever.
struct Endless(Vec<u8>, usize);

impl Read for Endless {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let from = self.1 % self.0.len();
        let taken = into.len().min(self.0.len() - from);
        into[..taken].copy_from_slice(&self.0[from..from + taken]);
        self.1 += taken;
        Ok(taken)
    }
}

#[test]
fn an_endless_number_of_members_and_an_endless_header_end() {
    let endless = |header: Header| Endless(header.as_bytes().to_vec(), 0);
    let mut seen = 0;
    let refused = members(endless(header(EntryType::Regular, "a", 0)), MOST, |_, _| {
        seen += 1;
        Ok(())
    });
    let refused = refused.unwrap_err();
    assert_eq!((refused.reason, seen), (Reason::WriteLimit, MAX_ENTRIES), "{}", refused.message);
    for kind in [EntryType::GNULongName, EntryType::GNULongLink, EntryType::XHeader, EntryType::XGlobalHeader]
    {
        let refused = members(endless(header(kind, "a", 1 << 30)), MOST, |_, _| Ok(())).unwrap_err();
        assert_eq!(refused.reason, Reason::InvalidArgument, "{}", refused.message);
    }
}

#[test]
fn a_link_is_judged_by_names_alone() {
    for (depth, target, stays) in [
        (0, "a", true),
        (0, "./a/../b", true),
        (0, "..", false),
        (1, "..", true),
        (1, "../..", false),
        (1, "a/../../..", false),
        (0, "", false),
        (0, "/a", false),
        (3, "../../../a", true),
    ] {
        assert_eq!(stays_within(depth, target), stays, "{depth} {target}");
    }
}
