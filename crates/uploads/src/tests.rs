use std::fs;
use std::path::PathBuf;

use containers::Amount;

use super::*;
use disk_quotas::Found;

struct Scene {
    top: tempfile::TempDir,
    uploads: Uploads,
    run: RunId,
    owner: Owner,
}

const MIB: u64 = 1 << 20;

/// The account of uploads of a run that may have so much.
fn owner(most: u64) -> Owner {
    let account = Arc::new(Account::new(Amount { bytes: most, files: 100 }, true));
    Owner { account, ended: CancellationToken::new(), writes_count: false }
}

impl Scene {
    fn new() -> Self {
        let top = tempfile::tempdir().unwrap();
        let run = RunId::new();
        fs::create_dir(top.path().join(run.to_string())).unwrap();
        let uploads = Uploads::new(top.path().to_owned());
        Self { top, uploads, run, owner: owner(64 * MIB) }
    }

    fn directory(&self) -> PathBuf {
        self.top.path().join(self.run.to_string()).join("uploads")
    }

    fn files(&self) -> usize {
        fs::read_dir(self.directory()).map_or(0, Iterator::count)
    }

    fn begin(&self, id: Option<&str>, offset: u64) -> Result<Upload, Reason> {
        self.begin_of(&self.owner, id, offset, 0)
    }

    fn begin_of(&self, owner: &Owner, id: Option<&str>, offset: u64, size: u64) -> Result<Upload, Reason> {
        let id = id.map(|id| UploadId::parse("id", id).unwrap());
        self.uploads.begin(self.run, owner.clone(), id, offset, size).map_err(|refusal| refusal.reason)
    }

    /// Breaks off an upload of another run after this was sent.
    fn break_off(&self, run: RunId, owner: &Owner, sent: &'static str) -> UploadId {
        fs::create_dir_all(self.uploads.privates.join(run.to_string())).unwrap();
        let id = UploadId::parse("id", &CallId::new().to_string()).unwrap();
        let upload = self.uploads.begin(run, owner.clone(), Some(id.clone()), 0, 0).unwrap();
        assert!(matches!(upload.receive(said([data(sent)]), 9), Err(Broken::Gone)));
        id
    }
}

const ID: &str = "0192a7c0-0000-7000-8000-000000000001";

/// What is said to an upload, all at once.
fn said(pieces: impl IntoIterator<Item = Piece>) -> mpsc::Receiver<Piece> {
    let (sender, receiver) = mpsc::channel(16);
    pieces.into_iter().for_each(|piece| sender.try_send(piece).unwrap());
    receiver
}

fn data(text: &'static str) -> Piece {
    Piece::Data(Bytes::from_static(text.as_bytes()))
}

#[test]
fn upload_is_kept_until_its_call_ends() {
    let scene = Scene::new();
    let upload = scene.begin(None, 0).unwrap();
    let content = upload.receive(said([data("ab"), data("c"), Piece::End]), 3).unwrap();
    assert_eq!((content.size, content.sha256.as_str()), (3, &*hex::encode(Sha256::digest("abc"))));
    let file = scene.directory().join(content.id().as_str());
    assert_eq!(fs::read(&file).unwrap(), b"abc");
    drop(content);
    assert_eq!(scene.files(), 0);
}

#[test]
fn interrupted_upload_with_an_id_resumes() {
    let scene = Scene::new();
    let broken = scene.begin(None, 0).unwrap().receive(said([data("ab")]), 9);
    assert!(matches!(broken, Err(Broken::Gone)));
    assert_eq!(scene.files(), 0);

    let upload = scene.begin(Some(ID), 0).unwrap();
    assert_eq!(scene.begin(Some(ID), 0).err(), Some(Reason::AlreadyExists));
    assert!(matches!(upload.receive(said([data("ab")]), 9), Err(Broken::Gone)));
    let id = UploadId::parse("id", ID).unwrap();
    assert_eq!(scene.uploads.received(scene.run, &id).unwrap(), 2);
    assert!(scene.uploads.received(RunId::new(), &id).is_err(), "of another run");
    assert_eq!(scene.begin(Some(ID), 0).err(), Some(Reason::PreconditionFailed));
    assert_eq!(scene.begin(Some(ID), 3).err(), Some(Reason::PreconditionFailed));
    let upload = scene.begin(Some(ID), 2).unwrap();
    let content = upload.receive(said([data("c"), Piece::End]), 3).unwrap();
    assert_eq!((content.size, content.sha256.as_str()), (3, &*hex::encode(Sha256::digest("abc"))));
    drop(content);
    assert_eq!((scene.files(), scene.begin(Some(ID), 3).err()), (0, Some(Reason::NotFound)));
}

#[test]
fn too_many_bytes_and_too_many_uploads_are_refused_and_leave_nothing() {
    let scene = Scene::new();
    let long = scene.begin(Some(ID), 0).unwrap().receive(said([data("abc"), data("d")]), 3);
    assert!(matches!(long, Err(Broken::Refused(refusal)) if refusal.reason == Reason::WriteLimit));
    assert_eq!(scene.files(), 0);
    let under_way: Vec<_> = (0..MOST).map(|_| scene.begin(None, 0).unwrap()).collect();
    assert_eq!(scene.begin(None, 0).err(), Some(Reason::Overloaded));
    drop(under_way);
    assert_eq!(scene.files(), 0);
    assert!(scene.begin(None, 0).is_ok());
}

#[test]
fn existing_files_are_not_opened_as_uploads() {
    let scene = Scene::new();
    fs::create_dir_all(scene.directory()).unwrap();
    fs::write(scene.top.path().join("secret"), "secret").unwrap();
    std::os::unix::fs::symlink(scene.top.path().join("secret"), scene.directory().join(ID)).unwrap();
    let upload = scene.begin(Some(ID), 0).unwrap();
    assert!(fs::symlink_metadata(scene.directory().join(ID)).unwrap().is_file(), "it is made anew");
    assert_eq!(fs::read(scene.top.path().join("secret")).unwrap(), b"secret");
    drop(upload);
    fs::remove_dir_all(scene.directory()).unwrap();
    std::os::unix::fs::symlink(scene.top.path(), scene.directory()).unwrap();
    assert_eq!(scene.begin(None, 0).err(), Some(Reason::Internal));
}

#[test]
fn old_uploads_of_an_earlier_daemon_are_removed() {
    let scene = Scene::new();
    fs::create_dir_all(scene.directory()).unwrap();
    let (old, young) = (ID, "0192a7c0-0000-7000-8000-000000000002");
    for name in [old, young] {
        fs::write(scene.directory().join(name), "x").unwrap();
    }
    let long_ago = SystemTime::now() - FORGOTTEN - Duration::from_secs(60);
    File::open(scene.directory().join(old)).unwrap().set_modified(long_ago).unwrap();
    let upload = scene.begin(None, 0).unwrap();
    assert!(!scene.directory().join(old).exists() && scene.directory().join(young).exists());
    drop(upload);
}

#[tokio::test(start_paused = true)]
async fn abandoned_upload_is_removed() {
    let scene = Scene::new();
    let upload = scene.begin(Some(ID), 0).unwrap();
    let broken = tokio::task::spawn_blocking(move || upload.receive(said([data("ab")]), 9)).await;
    assert!(matches!(broken.unwrap(), Err(Broken::Gone)));
    assert_eq!(scene.files(), 1);
    tokio::time::sleep(KEPT + Duration::from_secs(1)).await;
    assert_eq!((scene.files(), scene.begin(Some(ID), 2).err()), (0, Some(Reason::NotFound)));
}

#[test]
fn an_upload_replaces_one_that_a_killed_daemon_left() {
    let scene = Scene::new();
    let left = scene.begin(Some(ID), 0).unwrap().receive(said([data("left"), Piece::End]), 4).unwrap();
    left.leave();
    let next = Uploads::new(scene.top.path().to_owned());
    let id = UploadId::parse("id", ID).unwrap();
    let upload = next.begin(scene.run, scene.owner.clone(), Some(id), 0, 0).unwrap();
    let content = upload.receive(said([data("new"), Piece::End]), 3).unwrap();
    assert_eq!(fs::read(scene.directory().join(content.id().as_str())).unwrap(), b"new");
}

#[test]
fn an_upload_reserves_its_quota_from_its_beginning_to_its_end() {
    let scene = Scene::new();
    let begin = |id, size| scene.begin_of(&scene.owner, id, 0, size);
    assert_eq!(begin(None, 65 * MIB).err(), Some(Reason::WriteLimit));
    assert_eq!(scene.files(), 0);
    let broken = begin(Some(ID), 40 * MIB).unwrap().receive(said([data("ab")]), 9);
    assert!(matches!(broken, Err(Broken::Gone)));
    assert_eq!(begin(None, 25 * MIB).err(), Some(Reason::WriteLimit), "what is kept counts");
    let found = Found { amount: Amount { bytes: 30 * MIB, files: 3 }, ..Found::default() };
    scene.owner.account.take(found, std::time::Instant::now());
    assert!(scene.owner.account.is_over(), "beside what commands write");
    let found = Found { amount: Amount { bytes: MIB, files: 3 }, ..Found::default() };
    scene.owner.account.take(found, std::time::Instant::now());
    assert_eq!(scene.owner.account.to_wire().unwrap().used_bytes, 41 * MIB);
    let both = begin(None, 20 * MIB).unwrap();
    drop((both, scene.begin(Some(ID), 2).unwrap()));
    assert!(begin(None, 63 * MIB).is_ok(), "the space is given back");
    // The written file needs as much again.
    let counted = Owner { writes_count: true, ..scene.owner.clone() };
    assert_eq!(scene.begin_of(&counted, None, 0, 40 * MIB).err(), Some(Reason::WriteLimit));
    assert!(scene.begin_of(&counted, None, 0, 30 * MIB).is_ok());
    let one = scene.begin_of(&counted, None, 0, 20 * MIB).unwrap();
    assert_eq!(
        scene.begin_of(&counted, None, 0, 20 * MIB).err(),
        Some(Reason::WriteLimit),
        "two written files"
    );
    assert!(scene.begin_of(&counted, None, 0, 10 * MIB).is_ok());
    drop(one);
    assert!(scene.begin_of(&counted, None, 0, 30 * MIB).is_ok(), "the space of both is given back");
}

#[test]
fn an_upload_of_unknown_length_reserves_as_it_grows() {
    let scene = Scene::new();
    let piece = || Piece::Data(Bytes::from(vec![7; 3 << 20]));
    let small = owner(8 * MIB);
    let upload = scene.begin_of(&small, None, 0, 0).unwrap();
    let refused = upload.receive(said([piece(), piece(), piece(), Piece::End]), u64::MAX);
    assert!(matches!(refused, Err(Broken::Refused(refusal)) if refusal.reason == Reason::WriteLimit));
    assert_eq!(scene.files(), 0);
    let upload = scene.begin_of(&small, None, 0, 0).unwrap();
    assert!(
        upload.receive(said([piece(), piece(), Piece::End]), u64::MAX).is_ok(),
        "the space is given back"
    );
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_run_ends_its_uploads() {
    let scene = Arc::new(Scene::new());
    let same = scene.clone();
    let id = tokio::task::spawn_blocking(move || same.break_off(same.run, &same.owner, "ab")).await.unwrap();
    let streams = scene.begin(None, 0).unwrap();
    assert_eq!((scene.files(), scene.uploads.received(scene.run, &id).ok()), (2, Some(2)));
    scene.owner.ended.cancel();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(scene.uploads.received(scene.run, &id).is_err());
    let ended = tokio::task::spawn_blocking(|| streams.receive(said([data("ab"), Piece::End]), 9)).await;
    assert!(matches!(ended.unwrap(), Err(Broken::Refused(refusal)) if refusal.reason == Reason::Cancelled));
    assert_eq!(scene.files(), 0);
    assert!(scene.begin_of(&scene.owner, None, 0, 64 * MIB).is_ok(), "nothing of them counts any more");
}

#[test]
fn kept_uploads_of_all_runs_are_bounded_and_the_run_with_most_loses_its_oldest() {
    let scene = Scene::new();
    let runs: Vec<_> = (0..7).map(|_| (RunId::new(), owner(8 * MIB))).collect();
    let quiet = (RunId::new(), owner(8 * MIB));
    let spared = scene.break_off(quiet.0, &quiet.1, "ab");
    let kept: Vec<_> =
        (0..5).flat_map(|_| &runs).map(|(run, owner)| (*run, scene.break_off(*run, owner, "ab"))).collect();
    let is_kept = |(run, id): &(RunId, UploadId)| scene.uploads.received(*run, id).is_ok();
    assert_eq!(kept.iter().filter(|one| is_kept(one)).count(), MOST_KEPT - 1);
    assert!(is_kept(&(quiet.0, spared)), "the run with few keeps its own");
    assert!(kept[kept.len() - 7..].iter().all(is_kept), "the oldest ones went");
}
