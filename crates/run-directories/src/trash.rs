//! Reads a run's trash, for principals that may use the run.
//!
//! Trust boundary: the trash is written under the uid of the workspace's owner, who may also have put other files there. They may be links,
//! special files, or other names of files that the owner may not read. So every file is opened beneath the run's private directory without
//! following links. It must be a regular file of that owner with one name, have a bounded size, and parse.

use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use jail::{Dir, EntryName, Jail, Mount, Protection, RegularFile, Root, SandboxPath};
use operations::{MAX_TRASH_RECORD, TRASH_RECORD_SUFFIX, TrashEntry, TrashRecord};

/// Files that one scan reads. A trash has fewer.
const MOST: usize = 50_000;

/// An open trash.
pub struct Trash {
    directory: Dir,
    owner: u32,
}

/// A file that was deleted.
#[derive(Debug, PartialEq, Eq)]
pub struct Deleted {
    pub entry: TrashEntry,
    pub record: TrashRecord,
}

impl Trash {
    /// Opens the trash in a run's private directory. Returns `None` if no file was ever deleted.
    pub fn open(private: &Path) -> io::Result<Option<Self>> {
        // Any mount will do, because its name appears only in messages that are dropped.
        let root = match Root::open(Mount::State, private) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            root => root?,
        };
        let jail = Jail::new([root], Protection::default());
        let Ok(path) = SandboxPath::parse("@state/trash") else { return Ok(None) };
        let Ok(place) = jail.readable(&path) else { return Ok(None) };
        let (Ok(directory), Ok(meta)) = (place.open_dir(), place.metadata()) else { return Ok(None) };
        Ok(Some(Self { directory, owner: meta.uid }))
    }

    /// Returns at most `most` entries after `after`, oldest first, and whether there are more. Skips files that are no valid entries.
    pub fn list(&self, after: Option<TrashEntry>, most: usize) -> io::Result<(Vec<Deleted>, bool)> {
        let names = self.directory.entries().map_err(io::Error::other)?.take(MOST);
        let mut entries: Vec<TrashEntry> = names
            .filter_map(|name| {
                TrashEntry::parse(name.ok()?.name.as_str()?.strip_suffix(TRASH_RECORD_SUFFIX)?)
            })
            .filter(|entry| after.is_none_or(|after| *entry > after))
            .collect();
        entries.sort_unstable();
        let mut found = entries.into_iter().filter_map(|entry| self.find(entry));
        let page = found.by_ref().take(most).collect();
        Ok((page, found.next().is_some()))
    }

    /// Returns the record of an entry. `None` if no valid entry has that name.
    pub fn find(&self, entry: TrashEntry) -> Option<Deleted> {
        let file = self.file(&format!("{entry}{TRASH_RECORD_SUFFIX}"))?;
        if file.meta.size > MAX_TRASH_RECORD {
            return None;
        }
        let bytes = read(&file, 0, usize::try_from(MAX_TRASH_RECORD).ok()?).ok()?;
        let record: TrashRecord = serde_json::from_slice(&bytes).ok()?;
        let hashed = record.sha256.is_empty() || is_sha256(&record.sha256);
        let known = hashed && SandboxPath::parse(&record.path).is_ok();
        known.then_some(Deleted { entry, record })
    }

    /// Returns a piece of an entry's content. `None` if it has none.
    pub fn read(&self, entry: TrashEntry, offset: u64, most: usize) -> Option<io::Result<Vec<u8>>> {
        Some(read(&self.file(&entry.to_string())?, offset, most))
    }

    fn file(&self, name: &str) -> Option<RegularFile> {
        let file = self.directory.open_file(&EntryName::new(name.as_bytes())?).ok()?;
        (file.meta.uid == self.owner && file.meta.links == 1).then_some(file)
    }
}

fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn read(file: &RegularFile, offset: u64, most: usize) -> io::Result<Vec<u8>> {
    let left = usize::try_from(file.meta.size.saturating_sub(offset)).unwrap_or(usize::MAX);
    let mut bytes = vec![0; left.min(most)];
    let mut filled = 0;
    while filled < bytes.len() {
        match file.file.read_at(&mut bytes[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    use super::*;

    struct Scene {
        top: tempfile::TempDir,
        trash: PathBuf,
    }

    impl Scene {
        fn new() -> Self {
            let top = tempfile::tempdir().unwrap();
            let trash = top.path().join("private/trash");
            fs::create_dir_all(&trash).unwrap();
            fs::write(top.path().join("secret"), "secret").unwrap();
            Self { top, trash }
        }

        fn put(&self, entry: &str, path: &str, content: &str) {
            fs::write(self.trash.join(entry), content).unwrap();
            let record = serde_json::json!({
                "path": path, "type": "file", "size_bytes": content.len(), "sha256": "ab".repeat(32), "mode": 0o644,
            });
            fs::write(self.trash.join(format!("{entry}.json")), record.to_string()).unwrap();
        }

        fn open(&self) -> Trash {
            Trash::open(&self.top.path().join("private")).unwrap().unwrap()
        }

        fn listed(&self, after: &str, most: usize) -> (Vec<String>, bool) {
            let (page, more) = self.open().list(TrashEntry::parse(after), most).unwrap();
            (page.iter().map(|deleted| deleted.entry.to_string()).collect(), more)
        }

        fn content(&self, entry: &str, offset: u64) -> Option<String> {
            let bytes = self.open().read(TrashEntry::parse(entry).unwrap(), offset, 4)?.unwrap();
            Some(String::from_utf8(bytes).unwrap())
        }
    }

    #[test]
    fn entries_are_paged_and_contents_sent_in_pieces() {
        let scene = Scene::new();
        for entry in ["9-1-0", "10-1-0", "10-1-1", "10-2-0"] {
            scene.put(entry, "@project/a", "content");
        }
        assert_eq!(scene.listed("", 3), (vec!["9-1-0".into(), "10-1-0".into(), "10-1-1".into()], true));
        assert_eq!(scene.listed("10-1-1", 3), (vec!["10-2-0".into()], false));
        assert_eq!(scene.content("9-1-0", 0).as_deref(), Some("cont"));
        assert_eq!(scene.content("9-1-0", 4).as_deref(), Some("ent"));
        assert_eq!(scene.content("9-1-0", 7).as_deref(), Some(""));
        assert_eq!(scene.content("9-1-0", u64::MAX).as_deref(), Some(""));
        assert_eq!(scene.content("9-9-9", 0), None);
    }

    #[test]
    fn invalid_trash_entries_are_skipped() {
        let scene = Scene::new();
        let secret = scene.top.path().join("secret");
        scene.put("1-1-0", "@project/a", "x");
        fs::write(scene.trash.join("2-1-0"), "half").unwrap();
        for (entry, record) in [
            ("3-1-0", "{".to_owned()),
            (
                "4-1-0",
                r#"{"path":"/etc/passwd","type":"file","size_bytes":1,"sha256":"","mode":1}"#.to_owned(),
            ),
            (
                "5-1-0",
                r#"{"path":"a","type":"file","size_bytes":1,"sha256":"\u001b[2J","mode":1}"#.to_owned(),
            ),
            ("6-1-0", " ".repeat(100_000)),
        ] {
            fs::write(scene.trash.join(format!("{entry}.json")), record).unwrap();
        }
        symlink(&secret, scene.trash.join("7-1-0.json")).unwrap();
        fs::create_dir(scene.trash.join("8-1-0.json")).unwrap();
        fs::hard_link(scene.trash.join("1-1-0.json"), scene.trash.join("9-1-0.json")).unwrap();
        assert_eq!(scene.listed("", 10), (vec![], false), "not even one that has another name");
        fs::remove_file(scene.trash.join("9-1-0.json")).unwrap();
        assert_eq!(scene.listed("", 10), (vec!["1-1-0".into()], false));
    }

    #[test]
    fn linked_trash_entries_are_not_read() {
        let scene = Scene::new();
        let secret = scene.top.path().join("secret");
        symlink(&secret, scene.trash.join("1-1-0")).unwrap();
        fs::hard_link(&secret, scene.trash.join("2-1-0")).unwrap();
        assert_eq!((scene.content("1-1-0", 0), scene.content("2-1-0", 0)), (None, None));
        fs::remove_dir_all(&scene.trash).unwrap();
        symlink(scene.top.path(), &scene.trash).unwrap();
        assert!(Trash::open(&scene.top.path().join("private")).unwrap().is_none());
        assert!(Trash::open(&scene.top.path().join("nowhere")).unwrap().is_none());
    }
}
