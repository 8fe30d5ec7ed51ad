//! Swaps of files that the host lane changes.

use std::fs;
use std::os::unix::fs::symlink;

use harness::calls;
use harness::v1;
use harness::v1::operation::Kind as Operation;

use super::{Kind, Target, delete, kind};

fn envelope(text: &str) -> Operation {
    Operation::Patch(v1::PatchRequest { change: Some(v1::patch_request::Change::Envelope(text.to_owned())) })
}
/// All of them.
pub(super) fn kinds() -> Vec<Kind> {
    fn file(p: &Target) {
        p.put("d/f", "one\ngood\n");
        p.put("d/g", "one\ngood\n");
    }
    fn directory(p: &Target) {
        p.put("keep", "");
        fs::create_dir(p.at("e")).unwrap();
    }
    const OTHER: &str = "one\nevil\n";
    let write = || calls::write("d/f", "new\n");
    let edit = || calls::replace("d/f", "one", "new");
    let patch = || {
        envelope(
            "*** Begin Patch\n*** Update File: d/f\n@@\n-one\n+new\n*** Delete File: d/g\n*** End Patch\n",
        )
    };
    let moves = || {
        envelope("*** Begin Patch\n*** Update File: d/f\n*** Move to: d/h\n@@\n-one\n+new\n*** End Patch\n")
    };
    vec![
        kind("write: replaced", file, write, |p| p.replace("d/f", OTHER)),
        kind("write: in target", file, write, |p| p.put("d/f", OTHER)),
        kind("write: disguised", file, write, |p| p.disguise("d/f", OTHER)),
        kind("write: gone", file, write, |p| fs::remove_file(p.at("d/f")).unwrap()),
        kind("write: there now", |p| p.put("d/x", ""), write, |p| p.put("d/f", OTHER)),
        kind("write: permissions", file, write, |p| p.chmod("d/f", 0o777)),
        kind("write: another directory", file, write, |p| p.exchange_directory("d")),
        kind("write: a link now", file, write, |p| {
            fs::rename(p.at("d/f"), p.at("x")).unwrap();
            symlink("../x", p.at("d/f")).unwrap();
        }),
        kind("edit: replaced", file, edit, |p| p.replace("d/f", OTHER)),
        kind("edit: in target", file, edit, |p| p.put("d/f", OTHER)),
        kind("edit: disguised", file, edit, |p| p.disguise("d/f", OTHER)),
        kind("edit: permissions", file, edit, |p| p.chmod("d/f", 0o755)),
        kind("edit: another directory", file, edit, |p| p.exchange_directory("d")),
        kind("patch: one of its files", file, patch, |p| p.put("d/g", OTHER)),
        kind("patch: permissions", file, patch, |p| p.chmod("d/f", 0o755)),
        kind("patch: what it deletes, disguised", file, patch, |p| p.disguise("d/g", OTHER)),
        kind("patch: where it moves to", file, moves, |p| p.put("d/h", OTHER)),
        kind("delete: replaced", file, || delete("d/f"), |p| p.replace("d/f", OTHER)),
        kind("delete: disguised", file, || delete("d/f"), |p| p.disguise("d/f", OTHER)),
        kind("delete: permissions", file, || delete("d/f"), |p| p.chmod("d/f", 0o600)),
        kind("delete: another directory", file, || delete("d/f"), |p| p.exchange_directory("d")),
        kind(
            "delete: another empty directory",
            directory,
            || delete("e"),
            |p| {
                fs::create_dir(p.at("x")).unwrap();
                fs::rename(p.at("x"), p.at("e")).unwrap();
            },
        ),
    ]
}
