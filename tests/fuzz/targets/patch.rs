//! A patch in either form is refused in one line, or names its files once, survives the way to a worker, and fits the
//! files or says in one line why not. Looking changes nothing.
//!
//! Input: the form, then the content of two files and the patch's text, with a byte 0xFF between them.

#![no_main]

use std::collections::BTreeSet;
use std::sync::LazyLock;

use file_ops::preview_patch;
use fuzz::scene::{Scene, wide};
use fuzz::{is_one_line, survives_the_wire, text};
use libfuzzer_sys::fuzz_target;
use operations::{OpResult, Operation, Patch, PatchChange, Preview};

static SCENE: LazyLock<Scene> = LazyLock::new(|| Scene::new(&["f".to_owned(), "d/g".to_owned()]));

fuzz_target!(|data: &[u8]| {
    let Some((form, rest)) = data.split_first() else { return };
    let mut parts = rest.splitn(3, |byte| *byte == 0xff);
    let [f, g, patch] = [(); 3].map(|()| parts.next().unwrap_or_default());
    let patch = text(patch).into_owned();
    let change = if form % 2 == 0 { PatchChange::Unified(patch) } else { PatchChange::Envelope(patch) };
    let patch = match Patch::new(change) {
        Ok(patch) => patch,
        Err(malformed) => {
            assert!(is_one_line(&malformed.to_string()), "{malformed:?}");
            return;
        }
    };
    let named: BTreeSet<String> = patch.paths().iter().map(ToString::to_string).collect();
    assert!(!named.is_empty() && named.len() == patch.paths().len(), "{named:?}");
    survives_the_wire(&Operation::Patch(patch.clone()));
    SCENE.write("f", f);
    SCENE.write("d/g", g);
    match preview_patch(&SCENE.jail, &patch, &wide()) {
        Ok(Preview { result: OpResult::Patch(result), .. }) => {
            for file in &result.files {
                assert!(named.contains(&file.path), "{file:?}");
                assert!(file.moved_from.is_empty() || named.contains(&file.moved_from), "{file:?}");
            }
            assert!(result.notes.iter().all(|note| is_one_line(note)), "{:?}", result.notes);
        }
        Ok(other) => panic!("{other:?}"),
        Err(failure) => {
            assert!(is_one_line(&failure.message) && failure.message.len() < 8_000, "{failure:?}")
        }
    }
    assert_eq!(SCENE.read("f"), f);
    assert_eq!(SCENE.read("d/g"), g);
});
