//! Tests `write` of an uploaded file.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use jail::{Jail, Mount, Private, Protection, Root};
use operations::{Bounds, Held, OpResult, Reason, UploadId, Uploaded, Write, sha256};

use super::path;
use crate::{preview_write, write};

const ID: &str = "0192a7c0-0000-7000-8000-000000000001";

struct Scene {
    _top: tempfile::TempDir,
    inside: PathBuf,
    upload: PathBuf,
    jail: Jail,
}

impl Scene {
    fn new(content: &[u8]) -> Self {
        Self::on(&std::env::temp_dir(), content)
    }

    fn on(location: &Path, content: &[u8]) -> Self {
        let top = tempfile::tempdir_in(location).unwrap();
        let (inside, private) = (top.path().join("inside"), top.path().join("private"));
        fs::create_dir(&inside).unwrap();
        fs::create_dir_all(private.join("uploads")).unwrap();
        let upload = private.join("uploads").join(ID);
        fs::write(&upload, content).unwrap();
        let jail = Jail::new([Root::open(Mount::Project, &inside).unwrap()], Protection::default())
            .with_private(Private::open(&private, 1).unwrap());
        Self { _top: top, inside, upload, jail }
    }
}

fn request(at: &str, content: &[u8]) -> Write {
    let uploaded = Uploaded {
        id: UploadId::parse("id", ID).unwrap(),
        size: content.len() as u64,
        sha256: sha256(content),
        archive: false,
    };
    Write { uploaded: Some(uploaded), ..Write::new(path(at), "") }
}

#[test]
fn upload_is_written_with_its_mode_and_used_once() {
    let content = vec![7; 3_000_000];
    let scene = Scene::new(&content);
    let request = Write { mode: Some(0o751), ..request("d/f", &content) };
    let Ok(OpResult::Write(result)) = write(&scene.jail, &request, &Bounds::default(), None) else {
        panic!()
    };
    assert_eq!((result.bytes_written, result.sha256_after), (3_000_000, sha256(&content)));
    let file = scene.inside.join("d/f");
    assert_eq!(fs::read(&file).unwrap(), content);
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o7777, 0o751);
    assert!(!scene.upload.exists());
    let again = write(&scene.jail, &request, &Bounds::default(), None).unwrap_err();
    assert_eq!(again.reason, Reason::NotFound);
}

#[test]
fn mismatched_upload_changes_nothing() {
    let scene = Scene::new(b"abc");
    fs::write(scene.inside.join("f"), "old").unwrap();
    for other in [&b"abd"[..], b"ab", b"abcd"] {
        let refused = write(&scene.jail, &request("f", other), &Bounds::default(), None).unwrap_err();
        assert_eq!(refused.reason, Reason::PreconditionFailed, "{}", refused.message);
        assert_eq!(fs::read(scene.inside.join("f")).unwrap(), b"old");
        assert_eq!(fs::read_dir(&scene.inside).unwrap().count(), 1, "nothing is left beside it");
    }
}

#[test]
fn the_bound_is_that_of_transfers() {
    let scene = Scene::new(b"abc");
    let bounds = |max_transfer_bytes| Bounds { max_write_bytes: 1, max_transfer_bytes, ..Bounds::default() };
    let refused = write(&scene.jail, &request("f", b"abc"), &bounds(2), None).unwrap_err();
    assert_eq!(refused.reason, Reason::WriteLimit);
    assert!(write(&scene.jail, &request("f", b"abc"), &bounds(3), None).is_ok());
}

#[test]
fn upload_is_previewed_by_size_and_bound_to_its_hash() {
    let scene = Scene::new(b"abc");
    fs::write(scene.inside.join("f"), "old").unwrap();
    let request = request("f", b"abc");
    let preview = preview_write(&scene.jail, &request, &Bounds::default()).unwrap();
    let OpResult::Edit(shown) = &preview.result else { panic!("{:?}", preview.result) };
    assert_eq!(shown.diff, "Binary or very long: @project/f from 3 bytes to 3 bytes\n");
    assert_eq!(shown.sha256_after, sha256(b"abc"));
    let held = preview.bound.held().map(|held| Held { ..held });
    let bounds = Bounds { held_to: held, ..Bounds::default() };
    fs::write(scene.inside.join("f"), "new").unwrap();
    assert_eq!(write(&scene.jail, &request, &bounds, None).unwrap_err().reason, Reason::PreconditionFailed);
    fs::write(scene.inside.join("f"), "old").unwrap();
    assert!(write(&scene.jail, &request, &bounds, None).is_ok());
    assert_eq!(fs::read(scene.inside.join("f")).unwrap(), b"abc");
}

#[test]
fn a_large_upload_is_written_whole_on_any_file_system() {
    const LARGE: usize = 16 * 1024 * 1024;
    // The second one is in memory, where the kernel has direct I/O or not.
    for location in [std::env::temp_dir(), PathBuf::from("/dev/shm")] {
        for size in [LARGE, LARGE + 1, LARGE + 4096, LARGE + 4 * 1024 * 1024 + 4097] {
            // Its length divides no block's.
            let mut content = (0..=250).collect::<Vec<u8>>().repeat(size / 251 + 1);
            content.truncate(size);
            let scene = Scene::on(&location, &content);
            let written = write(&scene.jail, &request("f", &content), &Bounds::default(), None);
            assert!(
                matches!(written, Ok(OpResult::Write(_))),
                "{size} in {}: {written:?}",
                location.display()
            );
            assert!(fs::read(scene.inside.join("f")).unwrap() == content, "{size} in {}", location.display());
        }
    }
}
