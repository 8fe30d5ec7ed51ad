//! Patches of real files: what fits, what is refused and what it says, and what nobody may be able to do.

mod apply;
mod files;
mod git;

use std::fs;
use std::path::PathBuf;

use jail::{Jail, Mount, Private, Protection, Root};
use operations::{Bounds, FileChange, OpResult, Patch, PatchChange, PatchResult, Reason, ToolFailure};

use crate::{patch, preview_patch};

/// A jail with a private directory, over temporary ones.
struct Scene {
    // Held for its removal.
    top: tempfile::TempDir,
    inside: PathBuf,
    jail: Jail,
}

impl Scene {
    fn new() -> Self {
        let top = tempfile::tempdir().unwrap();
        let inside = top.path().join("inside");
        for name in ["inside", "outside", "private"] {
            fs::create_dir(top.path().join(name)).unwrap();
        }
        fs::write(top.path().join("outside/canary"), "canary\n").unwrap();
        let private = Private::open(&top.path().join("private"), 1).unwrap();
        let jail = Jail::new([Root::open(Mount::Project, &inside).unwrap()], Protection::default())
            .with_private(private);
        Self { top, inside, jail }
    }

    fn put(&self, at: &str, content: impl AsRef<[u8]>) {
        fs::create_dir_all(self.inside.join(at).parent().unwrap()).unwrap();
        fs::write(self.inside.join(at), content).unwrap();
    }

    fn get(&self, at: &str) -> Option<String> {
        fs::read(self.inside.join(at)).ok().map(|content| String::from_utf8_lossy(&content).into_owned())
    }

    fn patch(&self, change: PatchChange) -> Result<PatchResult, ToolFailure> {
        let change = Patch::new(change).unwrap();
        let bounds = Bounds::default();
        let preview = preview_patch(&self.jail, &change, &bounds).map(|preview| preview.result);
        let result = patch(&self.jail, &change, &bounds);
        match (preview, result) {
            (Ok(OpResult::Patch(preview)), Ok(OpResult::Patch(result))) => {
                let mut without_trash = result.clone();
                without_trash.files.iter_mut().for_each(|file| file.trash_entry.clear());
                assert_eq!(preview, without_trash, "a preview is what happens");
                Ok(result)
            }
            (Err(preview), Err(failure)) => {
                assert_eq!(preview.message, failure.message, "a preview fails as the patch does");
                Err(failure)
            }
            other => panic!("{other:?}"),
        }
    }

    fn unified(&self, text: &str) -> Result<PatchResult, ToolFailure> {
        self.patch(PatchChange::Unified(text.to_owned()))
    }

    fn envelope(&self, text: &str) -> Result<PatchResult, ToolFailure> {
        self.patch(PatchChange::Envelope(format!("*** Begin Patch\n{text}*** End Patch\n")))
    }
}
