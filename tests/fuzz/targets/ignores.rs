//! Ignore files with any content never keep glob and list from answering, in order and with files that are there.
//!
//! Input: `.gitignore` and `.ignore` of the root and `.gitignore` of a directory, with a byte 0xFF between them.

#![no_main]

use std::sync::LazyLock;

use file_ops::{Cancel, glob};
use fuzz::scene::{Scene, names, path, wide};
use libfuzzer_sys::fuzz_target;
use operations::{Glob, OpResult};

static NAMES: LazyLock<Vec<String>> = LazyLock::new(names);
static SCENE: LazyLock<Scene> = LazyLock::new(|| Scene::new(&NAMES));

fuzz_target!(|data: &[u8]| {
    let mut contents = data.split(|byte| *byte == 0xff);
    for file in [".gitignore", ".ignore", "d/.gitignore"] {
        SCENE.write(file, contents.next().unwrap_or_default());
    }
    let request =
        Glob { path: path("@project"), pattern: "**".into(), include_ignored: false, max_results: 10_000 };
    let Ok(OpResult::Glob(found)) = glob(&SCENE.jail, &request, &wide(), &Cancel::default()) else {
        panic!("the walk failed");
    };
    assert!(!found.truncated, "{found:?}");
    for path in &found.paths {
        let name = path.trim_start_matches("@project/");
        assert!(NAMES.iter().any(|there| there == name), "{name:?}");
        assert!(!name.split('/').any(|component| component.starts_with('.')), "{name:?} is hidden");
    }
});
