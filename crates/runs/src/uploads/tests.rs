use std::fs;
use std::path::PathBuf;

use super::*;

struct Scene {
    top: tempfile::TempDir,
    uploads: Uploads,
    run: RunId,
}

impl Scene {
    fn new() -> Self {
        let top = tempfile::tempdir().unwrap();
        let directories = Directories { state: top.path().to_owned() };
        let run = RunId::new();
        fs::create_dir_all(directories.private(&run.to_string())).unwrap();
        Self { top, uploads: Uploads::new(directories), run }
    }

    fn directory(&self) -> PathBuf {
        self.top.path().join("host-worker").join(self.run.to_string()).join("uploads")
    }

    fn files(&self) -> usize {
        fs::read_dir(self.directory()).map_or(0, Iterator::count)
    }

    fn begin(&self, id: Option<&str>, offset: u64) -> Result<Upload, Reason> {
        let id = id.map(|id| UploadId::parse("id", id).unwrap());
        self.uploads.begin(self.run, id, offset, 0).map_err(|refusal| refusal.reason)
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
fn all_of_it_is_there_until_its_call_is_over() {
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
fn one_that_breaks_goes_on_where_it_was_if_it_has_an_id() {
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
fn nothing_that_is_there_already_is_opened() {
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
fn what_a_daemon_left_is_removed_when_it_is_old() {
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
async fn one_that_nobody_goes_on_with_is_forgotten() {
    let scene = Scene::new();
    let upload = scene.begin(Some(ID), 0).unwrap();
    let broken = tokio::task::spawn_blocking(move || upload.receive(said([data("ab")]), 9)).await;
    assert!(matches!(broken.unwrap(), Err(Broken::Gone)));
    assert_eq!(scene.files(), 1);
    tokio::time::sleep(KEPT + Duration::from_secs(1)).await;
    assert_eq!((scene.files(), scene.begin(Some(ID), 2).err()), (0, Some(Reason::NotFound)));
}

#[test]
fn an_upload_goes_in_the_place_of_one_that_a_killed_daemon_left() {
    let scene = Scene::new();
    let left = scene.begin(Some(ID), 0).unwrap().receive(said([data("left"), Piece::End]), 4).unwrap();
    left.leave();
    let next = Uploads::new(Directories { state: scene.top.path().to_owned() });
    let id = UploadId::parse("id", ID).unwrap();
    let upload = next.begin(scene.run, Some(id), 0, 0).unwrap();
    let content = upload.receive(said([data("new"), Piece::End]), 3).unwrap();
    assert_eq!(fs::read(scene.directory().join(content.id().as_str())).unwrap(), b"new");
}
