//! Makes changes in a workspace, ordinary ones and hostile ones, for an overlay.

use std::ffi::CString;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

use crate::{check, place, report, sys};

/// What honest work does: makes, changes, moves and removes.
pub fn work() {
    report("make", fs::write("agent.txt", "by the agent\n"));
    report("deep", fs::create_dir_all("new/deep").and_then(|()| fs::write("new/deep/x.txt", "x\n")));
    report("mode", fs::set_permissions("b.sh", Permissions::from_mode(0o755)));
    report("remove", fs::remove_file("gone.txt"));
    report("replace", fs::remove_dir_all("old").and_then(|()| fs::create_dir("old")));
    report("within", fs::write("old/y.txt", "y\n"));
    report("link", symlink("a.txt", "link"));
    report("write", fs::write("same.txt", fs::read("same.txt").unwrap_or_default()));
}

/// What ought to do harm when it is accepted, or even looked at. `outside` is a path of the host.
pub fn attack(outside: &str) {
    let mode = |path: &str, mode| fs::set_permissions(path, Permissions::from_mode(mode));
    report("whiteout", node("whiteout", 0));
    report("device", node("device", 0x0103));
    for name in ["user.overlay.opaque", "user.overlay.redirect", "trusted.overlay.opaque"] {
        report(format_args!("mark {name}"), mark("dir", name, "y"));
    }
    report("fifo", place::fifo("fifo"));
    report("socket", UnixListener::bind("socket").map(drop));
    report("set-uid", fs::write("set-uid", "x").and_then(|()| mode("set-uid", 0o6755)));
    report("out", symlink(outside, "out"));
    report("moved", fs::rename("dir", "moved").or_else(|_| fs::remove_dir_all("dir")));
    report("dir", symlink(Path::new(outside).parent().unwrap_or(Path::new("/")), "dir"));
    report("file becomes a directory", fs::remove_file("file").and_then(|()| fs::create_dir("file")));
    report("within", fs::write("file/inner", "x"));
    report("peer", fs::hard_link("peer", "other").and_then(|()| fs::write("other", "changed")));
    report("unreadable", fs::write("secret", "x").and_then(|()| mode("secret", 0)));
    report("closed", fs::create_dir("closed").and_then(|()| mode("closed", 0)));
    report(
        "hooks",
        fs::create_dir_all(".git/hooks").and_then(|()| fs::write(".git/hooks/post-checkout", "x")),
    );
    report("sub", fs::create_dir_all("sub/.GIT").and_then(|()| fs::write("sub/.GIT/config", "x")));
    report("redirect", fs::create_dir("other-sub").and_then(|()| fs::write("other-sub/.git", "gitdir: /x")));
    report("name", fs::write("a\n+++ b\x1b[2J", "x"));
}

/// More levels than anybody enters.
pub fn deep() -> io::Result<()> {
    fs::create_dir("deep")?;
    std::env::set_current_dir("deep")?;
    for _ in 0..400 {
        fs::create_dir("d")?;
        std::env::set_current_dir("d")?;
    }
    fs::write("bottom", "x")?;
    std::env::set_current_dir("/workspace")
}

/// A character device.
fn node(path: &str, device: u64) -> io::Result<()> {
    let path = CString::new(path).unwrap();
    check(unsafe { sys::mknod(path.as_ptr(), 0o20666, device) }).map(drop)
}

fn mark(path: &str, name: &str, value: &str) -> io::Result<()> {
    let (path, name) = (CString::new(path).unwrap(), CString::new(name).unwrap());
    let value = value.as_bytes();
    check(unsafe { sys::setxattr(path.as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), 0) })
        .map(drop)
}
