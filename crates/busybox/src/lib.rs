#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags};
use sha2::{Digest, Sha256};

/// Limit on the size of the file. Debian's busybox has 2 MiB.
const MAX_BYTES: u64 = 16 << 20;
/// Limit on the number of applets. Busybox has about 400 at most.
const MAX_APPLETS: usize = 1_024;
/// Longest name of an applet, in bytes.
const MAX_NAME: usize = 32;
/// String that every build contains for its help text.
const BANNER: &[u8] = b"BusyBox v";

/// A static busybox for this machine's architecture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Busybox {
    program: Vec<u8>,
    digest: String,
    applets: Vec<String>,
}

/// Reason why no image can be made of a file. It names no path and may be sent to clients.
#[derive(Debug, thiserror::Error)]
pub enum NoBusybox {
    #[error("there is no such file")]
    Missing,
    /// A file type that must not be read.
    #[error("it is {0}, not a regular file")]
    NotAFile(&'static str),
    /// The file cannot be opened or read.
    #[error("it cannot be read")]
    Unreadable(#[source] io::Error),
    /// Larger than any busybox.
    #[error("it is larger than {} MiB", MAX_BYTES >> 20)]
    TooLarge,
    /// A script, a text, or a program for another architecture.
    #[error("it is not a program for Linux on {}", std::env::consts::ARCH)]
    Foreign,
    /// It needs a loader and libraries, which the image does not contain.
    #[error("it is dynamically linked, and the image holds no libraries")]
    Dynamic,
    #[error("it is not busybox: it has no table of applets")]
    OtherProgram,
}

impl Busybox {
    /// Reads and checks the file.
    ///
    /// It opens the file without blocking, so a FIFO cannot make it wait.
    pub fn read(path: &Path) -> Result<Self, NoBusybox> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = rustix::fs::open(path, flags, Mode::empty()).map_err(|error| match error {
            rustix::io::Errno::NOENT => NoBusybox::Missing,
            error => NoBusybox::Unreadable(error.into()),
        })?;
        let status = rustix::fs::fstat(&file).map_err(|error| NoBusybox::Unreadable(error.into()))?;
        let strange = match FileType::from_raw_mode(status.st_mode) {
            FileType::RegularFile => None,
            FileType::Directory => Some("a directory"),
            FileType::Fifo => Some("a FIFO"),
            _ => Some("a device"),
        };
        if let Some(strange) = strange {
            return Err(NoBusybox::NotAFile(strange));
        }
        // Allocated once: a vector that grows leaves its earlier copies in the daemon's memory.
        let length = u64::try_from(status.st_size).unwrap_or_default().min(MAX_BYTES);
        let mut program = Vec::with_capacity(usize::try_from(length + 1).unwrap_or_default());
        File::from(file).take(MAX_BYTES + 1).read_to_end(&mut program).map_err(NoBusybox::Unreadable)?;
        Self::parse(program)
    }

    /// Checks a program's bytes.
    pub fn parse(program: Vec<u8>) -> Result<Self, NoBusybox> {
        if program.len() as u64 > MAX_BYTES {
            return Err(NoBusybox::TooLarge);
        }
        if is_dynamic(&program).ok_or(NoBusybox::Foreign)? {
            return Err(NoBusybox::Dynamic);
        }
        let says_so = program.windows(BANNER.len()).any(|window| window == BANNER);
        let applets = applets(&program).filter(|_| says_so).ok_or(NoBusybox::OtherProgram)?;
        let digest = format!("sha256:{}", hex::encode(Sha256::digest(&program)));
        Ok(Self { program, digest, applets })
    }

    pub fn program(&self) -> &[u8] {
        &self.program
    }

    /// Returns `sha256:` and 64 hexadecimal digits.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// Returns the names of the applets in ascending order, `busybox` included.
    pub fn applets(&self) -> &[String] {
        &self.applets
    }
}

/// Returns true if the program needs a loader.
///
/// `None` if it is not a 64-bit ELF program for this architecture. The fields are those of elf(5).
fn is_dynamic(program: &[u8]) -> Option<bool> {
    const PT_LOAD: u32 = 1;
    const PT_INTERP: u32 = 3;
    const CLASS_64: u8 = 2;
    const LITTLE_ENDIAN: u8 = 1;
    let machine = match std::env::consts::ARCH {
        "x86_64" => 62,
        "aarch64" => 183,
        "riscv64" => 243,
        _ => return None,
    };
    if !program.starts_with(&[0x7f, b'E', b'L', b'F', CLASS_64, LITTLE_ENDIAN])
        || !matches!(u16_at(program, 16)?, 2 | 3)
        || u16_at(program, 18)? != machine
    {
        return None;
    }
    let table = usize::try_from(u64::from_le_bytes(*program.get(32..)?.first_chunk()?)).ok()?;
    let (size, count) = (usize::from(u16_at(program, 54)?), usize::from(u16_at(program, 56)?));
    let headers = program.get(table..table.checked_add(size.checked_mul(count)?)?)?;
    let kinds = headers
        .chunks(size.max(4))
        .map(|header| header.first_chunk().map(|kind| u32::from_le_bytes(*kind)))
        .collect::<Option<Vec<_>>>()?;
    kinds.contains(&PT_LOAD).then(|| kinds.contains(&PT_INTERP))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Finds the table of names: the longest sequence of names in ascending order that contains `busybox`.
fn applets(program: &[u8]) -> Option<Vec<String>> {
    let (mut table, mut run, mut has_busybox) = (Vec::new(), Vec::new(), false);
    for piece in program.split(|byte| *byte == 0) {
        let name = name_at_end(piece);
        // Only the first name of a table may follow a byte other than NUL.
        let goes_on = name.len() == piece.len() && run.last().is_some_and(|last| *last < name);
        if !goes_on {
            run.clear();
            has_busybox = false;
        }
        if !name.is_empty() {
            run.push(name);
            has_busybox |= name == b"busybox";
        }
        if has_busybox && run.len() > table.len() {
            table.clone_from(&run);
        }
    }
    let names = table.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
    (1..=MAX_APPLETS).contains(&table.len()).then_some(names)
}

/// Returns the longest name at the end of the piece, or nothing.
fn name_at_end(piece: &[u8]) -> &[u8] {
    let first = piece.len().saturating_sub(MAX_NAME);
    (first..piece.len()).map(|at| &piece[at..]).find(|text| is_name(text)).unwrap_or_default()
}

fn is_name(text: &[u8]) -> bool {
    let plain = |byte: &u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'+');
    matches!(text, b"[" | b"[[") || text.first().is_some_and(u8::is_ascii_lowercase) && text.iter().all(plain)
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::process::Command;

    use super::*;

    /// Of Debian's package busybox-static, which deploy/ installs.
    const HOSTS: &str = "/bin/busybox";

    /// An ELF program with these program headers and this for its data.
    fn elf(machine: u16, headers: &[u32], data: &[u8]) -> Vec<u8> {
        let mut program = vec![0; 64];
        program[..6].copy_from_slice(b"\x7fELF\x02\x01");
        program[16] = 2;
        program[18..20].copy_from_slice(&machine.to_le_bytes());
        program[32] = 64;
        program[54] = 56;
        program[56] = u8::try_from(headers.len()).unwrap();
        for kind in headers {
            program.extend(kind.to_le_bytes());
            program.extend([0; 52]);
        }
        program.extend(data);
        program
    }

    fn here() -> u16 {
        if cfg!(target_arch = "aarch64") { 183 } else { 62 }
    }

    const TABLE: &[u8] = b"BusyBox v1\0\xbb\x02[\0[[\0ash\0busybox\0cat\0sh\0xxd\0\x01\x02cat\0dd\0";

    fn why(program: Vec<u8>) -> String {
        Busybox::parse(program).unwrap_err().to_string()
    }

    #[test]
    fn the_hosts_busybox_has_the_applets_that_it_lists() {
        let busybox =
            Busybox::read(Path::new(HOSTS)).expect("the package busybox-static is part of the set-up");
        let listed = Command::new(HOSTS).arg("--list").output().unwrap();
        let listed = String::from_utf8(listed.stdout).unwrap();
        assert_eq!(busybox.applets(), listed.lines().collect::<Vec<_>>());
        assert!(busybox.applets().iter().any(|name| name == "sh"));
        assert_eq!(busybox.program(), std::fs::read(HOSTS).unwrap());
        assert_eq!(busybox.digest().len(), "sha256:".len() + 64);
    }

    #[test]
    fn a_table_begins_where_its_first_name_does() {
        let busybox = Busybox::parse(elf(here(), &[1], TABLE)).unwrap();
        assert_eq!(busybox.applets(), ["[", "[[", "ash", "busybox", "cat", "sh", "xxd"]);
    }

    #[test]
    fn foreign_or_dynamic_busybox_is_refused() {
        let foreign = format!("it is not a program for Linux on {}", std::env::consts::ARCH);
        for program in [
            Vec::new(),
            b"#!/bin/sh\n".to_vec(),
            elf(here() + 1, &[1], TABLE),
            elf(here(), &[], TABLE),
            elf(here(), &[1], TABLE)[..70].to_vec(),
            b"\x7fELF\x02\x01".to_vec(),
        ] {
            assert_eq!(why(program), foreign);
        }
        assert!(why(elf(here(), &[1, 3], TABLE)).starts_with("it is dynamically linked"));
        for data in [&b""[..], b"busybox", b"BusyBox v1\0a\0b\0", &TABLE[11..]] {
            assert!(why(elf(here(), &[1], data)).starts_with("it is not busybox"), "{data:?}");
        }
        assert_eq!(why(vec![0; (16 << 20) + 1]), "it is larger than 16 MiB");
    }

    #[test]
    fn header_tables_that_lie_are_refused() {
        for (at, value) in [(32, 0xff), (39, 0xff), (54, 0), (56, 0xff)] {
            let mut program = elf(here(), &[1], TABLE);
            program[at] = value;
            assert!(why(program).contains("program for Linux"), "{at}");
        }
    }

    #[test]
    fn special_files_as_busybox_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let why = |path: &Path| Busybox::read(path).unwrap_err();

        assert!(matches!(why(&path("none")), NoBusybox::Missing));
        assert!(matches!(why(directory.path()), NoBusybox::NotAFile("a directory")));
        rustix::fs::mknodat(rustix::fs::CWD, path("fifo"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
            .unwrap();
        assert!(matches!(why(&path("fifo")), NoBusybox::NotAFile("a FIFO")));
        assert!(matches!(why(Path::new("/dev/zero")), NoBusybox::NotAFile("a device")));
        symlink("loop", path("loop")).unwrap();
        assert!(matches!(why(&path("loop")), NoBusybox::Unreadable(_)));
        // Root may read what has no mode; a regular file of which nothing can be read is there for everybody.
        assert!(matches!(why(Path::new("/proc/self/mem")), NoBusybox::Unreadable(_)));
        std::fs::write(path("closed"), TABLE).unwrap();
        std::fs::set_permissions(path("closed"), Permissions::from_mode(0o0)).unwrap();
        let closed = why(&path("closed"));
        let expected =
            if rustix::process::geteuid().is_root() { "program for Linux" } else { "cannot be read" };
        assert!(closed.to_string().contains(expected), "{closed}");
        File::create(path("large")).unwrap().set_len(1 << 40).unwrap();
        assert!(matches!(why(&path("large")), NoBusybox::TooLarge));
        assert!(matches!(why(&std::env::current_exe().unwrap()), NoBusybox::Dynamic | NoBusybox::TooLarge));
    }
}
