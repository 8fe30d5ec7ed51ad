//! A glob pattern is refused or finds exactly the files that a plain model of the convention says, in order; compiling
//! and matching it takes bounded time and memory, whatever it is.
//!
//! Input: the pattern.

#![no_main]

use std::sync::LazyLock;

use file_ops::{Cancel, glob};
use fuzz::scene::{Scene, names, wide};
use fuzz::text;
use libfuzzer_sys::fuzz_target;
use operations::{OpResult, Operation, Reason};
use wire::v1;
use wire::v1::operation::Kind;

static NAMES: LazyLock<Vec<String>> = LazyLock::new(|| {
    let mut names = names();
    names.sort();
    names
});
static SCENE: LazyLock<Scene> = LazyLock::new(|| Scene::new(&NAMES));

fuzz_target!(|data: &[u8]| {
    let pattern = text(data).into_owned();
    let request = v1::GlobRequest {
        pattern: pattern.clone(),
        include_ignored: true,
        max_results: Some(10_000),
        ..v1::GlobRequest::default()
    };
    let Ok(Operation::Glob(request)) = fuzz::parsed(Kind::Glob(request)) else { return };
    let found = match glob(&SCENE.jail, &request, &wide(), &Cancel::default()) {
        Ok(OpResult::Glob(found)) => found,
        Ok(other) => panic!("a glob answered {other:?}"),
        Err(failure) => {
            assert_eq!(failure.reason, Reason::InvalidArgument, "{failure:?}");
            assert!(failure.message.len() < 400, "{failure:?}");
            return;
        }
    };
    assert!(!found.truncated && found.hint.is_empty(), "{found:?}");
    let mut paths: Vec<&str> = found.paths.iter().map(|path| path.trim_start_matches("@project/")).collect();
    paths.sort_unstable();
    for name in NAMES.iter() {
        let matched = paths.binary_search(&name.as_str()).is_ok();
        if let Some(expected) = fuzz::glob::matches(&pattern, name) {
            assert_eq!(matched, expected, "{pattern:?} {name:?}");
        }
    }
});
