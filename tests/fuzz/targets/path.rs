//! A path that is accepted is normal, stays beneath its mount and parses back to itself; one that is refused is refused
//! in one short line. What it may be used for is decided without a panic, and by its normal form alone.
//!
//! Input: the path.

#![no_main]

use fuzz::{is_one_line, text};
use jail::{
    Access, EntryName, GitReads, MAX_COMPONENT_BYTES, MAX_PATH_BYTES, Protection, RelPath, SandboxPath,
};
use libfuzzer_sys::fuzz_target;

/// Bytes of the longest message: 200 characters, each escaped, and words around them.
const MAX_MESSAGE: usize = 2_500;

fuzz_target!(|data: &[u8]| {
    let text = text(data);
    match SandboxPath::parse(&text) {
        Ok(path) => accepted(&text, &path),
        Err(refusal) => told(&refusal.to_string()),
    }
    if let Some(name) = EntryName::new(data) {
        joined(&name);
    }
});

fn told(message: &str) {
    assert!(is_one_line(message) && message.len() < MAX_MESSAGE, "{message:?}");
}

fn accepted(text: &str, path: &SandboxPath) {
    let rel = path.rel().as_str();
    assert!(!text.contains('\0') && rel.len() <= MAX_PATH_BYTES);
    assert!(!rel.starts_with('/') && !rel.ends_with('/') && !rel.contains("//"));
    for component in path.rel().components() {
        assert!(!matches!(component, "" | "." | "..") && component.len() <= MAX_COMPONENT_BYTES);
        assert!(component.split('\\').all(|part| part != ".."));
    }
    assert_eq!(path.rel().components().collect::<Vec<_>>().join("/"), rel);
    for form in [path.to_string(), path.container_path()] {
        assert_eq!(SandboxPath::parse(&form).as_ref(), Ok(path), "{form:?}");
    }
    told(&path.excerpt());
    let up: Vec<RelPath> = std::iter::successors(path.rel().parent(), RelPath::parent).collect();
    assert_eq!(up.len(), path.rel().components().count());
    for git_reads in [GitReads::Open, GitReads::Guarded] {
        for access in [Access::Read, Access::Write, Access::Execute] {
            if let Err(refusal) = (Protection { git_reads }).check(path, access) {
                told(&refusal.to_string());
            }
        }
    }
}

/// Any name of a directory entry either has a path or says that it has none.
fn joined(name: &EntryName) {
    assert!(std::str::from_utf8(name.shown().as_bytes()).is_ok());
    if let Some(path) = RelPath::root().join(name) {
        assert_eq!((path.file_name(), path.components().count()), (name.as_str(), 1));
    }
}
