//! Images other than the default one, made from files of this host: no registry takes part.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use parking_lot::Mutex;

use crate::engine::{docker, on_engine};

/// An image of the engine's; removed with the value.
pub struct Image(pub String);

impl Image {
    /// Imports an image that holds these text files and nothing else.
    pub fn of_files(name: &str, files: &[(&str, &str)], changes: &[&str]) -> Self {
        let root = tempfile::tempdir().unwrap();
        for (path, content) in files {
            place(root.path(), path, content.as_bytes(), 0o644);
        }
        Self::import(name, root.path(), changes)
    }

    /// Imports an image that holds these links, by place and target, and one file.
    pub fn of_links(name: &str, links: &[(&str, &str)]) -> Self {
        let root = tempfile::tempdir().unwrap();
        place(root.path(), "motd", b"links", 0o644);
        for (path, target) in links {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::os::unix::fs::symlink(target, path).unwrap();
        }
        Self::import(name, root.path(), &[])
    }

    /// Imports an image with a program of this host in `/bin`, the libraries that it needs, and these text files.
    pub fn of_program(name: &str, program: &Path, files: &[(&str, &str)]) -> Self {
        let root = tempfile::tempdir().unwrap();
        let file = program.file_name().unwrap().to_str().unwrap();
        place(root.path(), &format!("bin/{file}"), &std::fs::read(program).unwrap(), 0o755);
        let libraries = Command::new("ldd").arg(program).output().unwrap();
        let listed = String::from_utf8(libraries.stdout).unwrap();
        for library in listed.split_whitespace().filter(|word| word.starts_with('/')) {
            place(root.path(), &library[1..], &std::fs::read(library).unwrap(), 0o755);
        }
        for (path, content) in files {
            place(root.path(), path, content.as_bytes(), 0o644);
        }
        Self::import(name, root.path(), &[])
    }

    /// Imports an image of what is made in a directory.
    pub fn of_tree(name: &str, make: impl FnOnce(&Path), changes: &[&str]) -> Self {
        let root = tempfile::tempdir().unwrap();
        make(root.path());
        Self::import(name, root.path(), changes)
    }

    fn import(name: &str, root: &Path, changes: &[&str]) -> Self {
        let tar =
            Command::new("tar").arg("-C").arg(root).args(["--owner=0", "--group=0", "-c", "."]).output();
        let tar = tar.unwrap();
        assert!(tar.status.success());
        let reference = format!("cofferdam-test/{name}:{}", std::process::id());
        let mut import = docker()
            .arg("import")
            .args(changes.iter().flat_map(|change| ["--change", change]))
            .args(["-", &reference])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        import.stdin.take().unwrap().write_all(&tar.stdout).unwrap();
        assert!(import.wait().unwrap().success());
        Self(reference)
    }
}

impl Drop for Image {
    /// A container that still exists keeps the image without its name. It is removed with its daemon.
    fn drop(&mut self) {
        let id = ["image", "inspect", "--format", "{{.Id}}", &self.0];
        let id =
            docker().args(id).output().map(|told| String::from_utf8_lossy(&told.stdout).trim().to_owned());
        let _ = docker().args(["rmi", "-f", &self.0]).output();
        LEFT.lock().extend(id.into_iter().filter(|id| !id.is_empty()));
    }
}

/// Identities of images whose values have ended.
static LEFT: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Removes images whose values have ended and whose containers are gone.
pub(crate) fn remove_left() {
    let mut left = LEFT.lock();
    if left.is_empty() {
        return;
    }
    let nameless = ["images", "--no-trunc", "--quiet", "--filter", "dangling=true"];
    let Ok(nameless) = docker().args(nameless).output() else { return };
    let nameless = String::from_utf8_lossy(&nameless.stdout).into_owned();
    left.retain(|id| {
        nameless.lines().any(|line| line == id)
            && docker().args(["rmi", id]).output().is_ok_and(|removed| !removed.status.success())
    });
}

/// The engine's image of Debian, made if it is not there.
pub fn debian() -> String {
    made_by(Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../images/debian-base.sh")))
}

/// The image of `images/dev`, made if it is not there.
pub fn dev_image() -> String {
    work_image("dev")
}

/// The image of `images/rust`, made if it is not there.
pub fn rust_image() -> String {
    work_image("rust")
}

/// The image of `images/programs`, made if it is not there.
pub fn programs_image() -> String {
    work_image("programs")
}

/// The image of `images/services`, made if it is not there.
pub fn services_image() -> String {
    work_image("services")
}

fn work_image(name: &str) -> String {
    let failed = std::env::var_os("COFFERDAM_NO_IMAGES").is_some();
    assert!(!failed, "tests/run.sh could not make the images; target/images.log says why");
    let mut script = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/images.sh"));
    script.arg(name);
    made_by(script)
}

fn made_by(mut script: Command) -> String {
    on_engine(&mut script);
    let output = script.env("COFFERDAM_NO_PULL", "1").stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "{script:?}: {}", output.status);
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn place(root: &Path, path: &str, content: &[u8], mode: u32) {
    let path = root.join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, content).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
}
