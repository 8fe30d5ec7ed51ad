//! The root of a container, outside of the run's mounts.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use cofferdam_jail::{Jail, Mount, Parents, Protection, Root, SandboxPath, WriteMode};

fn path(text: &str) -> SandboxPath {
    SandboxPath::parse_anywhere(text).unwrap()
}

fn read(jail: &Jail, text: &str) -> Result<String, String> {
    let place = path(text);
    let place = jail.readable(&place).map_err(|refusal| refusal.to_string())?;
    let opened = place.open_file().map_err(|error| error.to_string())?;
    std::io::read_to_string(opened.file).map_err(|error| error.to_string())
}

fn container(at: &Path, others: Vec<Root>) -> Jail {
    Jail::new(others, Protection::default()).with_container(at).unwrap()
}

#[test]
fn links_are_those_of_a_whole_root_and_lead_into_no_mount() {
    let top = tempfile::tempdir().unwrap();
    let at = |name: &str| top.path().join(name);
    for name in ["etc", "tmp", "proc/self", "workspace", ".cofferdam"] {
        fs::create_dir_all(at(name)).unwrap();
    }
    for name in ["etc/hosts", "proc/self/environ", "workspace/a", ".cofferdam/guest"] {
        fs::write(at(name), name).unwrap();
    }
    for (link, target) in [
        ("abs", "/etc/hosts"),
        ("up", "../../../../etc/hosts"),
        ("dir", "/etc"),
        ("far", "dir/../etc/hosts"),
        ("magic", "/proc/self"),
        ("mount", "/workspace"),
        ("guest", "../.cofferdam/guest"),
        ("loop", "/tmp/loop"),
        ("none", "/tmp/absent"),
    ] {
        symlink(target, at("tmp").join(link)).unwrap();
    }
    let jail = container(top.path(), Vec::new());
    for text in ["/etc/hosts", "/tmp/abs", "/tmp/up", "/tmp/dir/hosts", "/tmp/far"] {
        assert_eq!(read(&jail, text).as_deref(), Ok("etc/hosts"), "{text}");
    }
    for (text, words) in [
        ("/proc/self/environ", "/proc, /sys, /dev"),
        ("/tmp/magic/environ", "/proc, /sys, /dev"),
        ("/tmp/guest", "/proc, /sys, /dev"),
        ("/tmp/mount/a", "leads into a mount"),
        ("/tmp/loop", "too many levels"),
        ("/tmp/none", "no such file"),
    ] {
        let refused = read(&jail, text).unwrap_err();
        assert!(refused.contains(words), "{text}: {refused}");
        if !words.starts_with("no such") && !words.starts_with("too many") {
            let below = path(&format!("{text}/new/x"));
            assert!(jail.settled(&below).unwrap_err().to_string().contains(words), "{text}");
        }
    }

    let settled = |text: &str| jail.settled(&path(text)).unwrap().to_string();
    assert_eq!(settled("/tmp/dir/new/x"), "/etc/new/x");
    assert_eq!(settled("/tmp/abs"), "/tmp/abs", "the last name is itself");
    let place = jail.settled(&path("/tmp/dir/new/x")).unwrap();
    let target = jail.writable(&place).unwrap().target(Parents::Create).unwrap();
    target.write(b"written", WriteMode::CreateOnly).unwrap();
    assert_eq!(fs::read_to_string(at("etc/new/x")).unwrap(), "written");
    // What is not settled follows no link.
    let plain = path("/tmp/dir/y");
    assert!(jail.writable(&plain).unwrap().target(Parents::Create).is_err());
    assert!(!at("etc/y").exists());
}

/// The places of this host stand for those of a container.
#[test]
fn another_name_of_a_mount_is_recognised_by_the_mount() {
    let shm = tempfile::tempdir_in("/dev/shm").unwrap();
    fs::write(shm.path().join("file"), "here").unwrap();
    let name = shm.path().join("file").display().to_string();
    let name = name.strip_prefix("/dev").unwrap();
    let root = Path::new("/dev");
    assert_eq!(read(&container(root, Vec::new()), name).as_deref(), Ok("here"), "mount points are crossed");
    let mount = || vec![Root::open(Mount::Project, Path::new("/dev/shm")).unwrap()];
    assert!(read(&container(root, mount()), name).unwrap_err().contains("another mount point"));
    let kernel = container(Path::new("/sys"), Vec::new());
    assert!(read(&kernel, "/kernel/notes").unwrap_err().contains("another mount point"));
    // A jail of mounts alone has no such place.
    let refused = read(&Jail::new(mount(), Protection::default()), name).unwrap_err();
    assert!(refused.contains("not mounted"), "{refused}");
}
