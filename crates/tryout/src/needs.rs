//! Checks what a private daemon needs of this host, before anything is made.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use doctor::{Finding, Verdict};
use tokio::process::Command;

use crate::coffer::this_program;
use crate::daemon;
use crate::failure::Failure;

/// Bytes of a program in which its headers are.
const HEADERS: u64 = 64 * 1024;

/// Returns the path of `cofferd` if this host has all that it needs.
///
/// `words` is the command after `coffer`, for the message that root is needed.
pub(crate) async fn check(words: &str, busybox: &Path) -> Result<PathBuf, Failure> {
    let this = this_program()?;
    let program = daemon::find(&this, std::env::var_os("PATH").as_deref()).ok_or_else(|| {
        Failure::failed(
            format!("cofferd is neither beside {} nor in PATH", this.display()),
            "install cofferd and coffer of the same release into one directory",
        )
    })?;
    same_release(&program).await?;
    if !rustix::process::geteuid().is_root() {
        return Err(Failure::failed(
            "cofferd mounts workspaces into containers, which needs root",
            format!("run `sudo {} {words}`", this.display()),
        ));
    }
    if let Some(finding) =
        doctor::examine(None).await.iter().find(|finding| finding.verdict == Verdict::Missing)
    {
        return Err(missing(finding));
    }
    busybox_is_static(busybox)?;
    Ok(program)
}

/// Checks that both programs have the same version, because their protocol may differ otherwise.
async fn same_release(program: &Path) -> Result<(), Failure> {
    let mut command = Command::new(program);
    let asked = command.arg("--version").stdin(Stdio::null()).kill_on_drop(true).output().await;
    let said = asked.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    let said = said.unwrap_or_else(|error| error.to_string());
    let own = env!("CARGO_PKG_VERSION");
    if said == format!("cofferd {own}") {
        return Ok(());
    }
    Err(Failure::failed(
        format!("{} is not cofferd {own}: {}", program.display(), text::excerpt(&said)),
        "install cofferd and coffer of the same release into one directory",
    ))
}

fn missing(finding: &Finding) -> Failure {
    Failure::failed(
        format!("{}: {}", finding.topic, finding.found),
        finding.follows.clone().unwrap_or_else(|| "`coffer doctor` says more".to_owned()),
    )
}

/// Checks that the default image can be made.
fn busybox_is_static(path: &Path) -> Result<(), Failure> {
    let next = "install one (Debian, Ubuntu: apt-get install busybox-static), or name another with --busybox";
    let mut head = Vec::new();
    let read = File::open(path).and_then(|file| file.take(HEADERS).read_to_end(&mut head));
    match read {
        Err(error) => {
            Err(Failure::failed(format!("there is no busybox at {}: {error}", path.display()), next))
        }
        Ok(_) if !head.starts_with(b"\x7fELF") => {
            Err(Failure::failed(format!("{} is not a program", path.display()), next))
        }
        Ok(_) if has_interpreter(&head) => {
            Err(Failure::failed(format!("{} needs libraries, which the image lacks", path.display()), next))
        }
        Ok(_) => Ok(()),
    }
}

/// Returns true if the headers of a program of 64 bits name a dynamic loader (elf(5), `PT_INTERP`).
///
/// Others are accepted: the daemon examines the file itself.
fn has_interpreter(head: &[u8]) -> bool {
    const INTERPRETER: [u8; 4] = 3u32.to_le_bytes();
    let bytes = |at: usize, length: usize| head.get(at..at.checked_add(length)?);
    let number = |at: usize, length: usize| {
        bytes(at, length)
            .map(|bytes| bytes.iter().rev().fold(0_usize, |sum, byte| (sum << 8) | usize::from(*byte)))
    };
    if head.get(4..6) != Some(&[2, 1][..]) {
        return false;
    }
    let (Some(first), Some(size), Some(count)) = (number(0x20, 8), number(0x36, 2), number(0x38, 2)) else {
        return false;
    };
    (0..count).any(|index| {
        let at = size.checked_mul(index).and_then(|offset| first.checked_add(offset));
        at.and_then(|at| bytes(at, 4)) == Some(&INTERPRETER[..])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a program with one header of this type.
    fn program(header: u32) -> Vec<u8> {
        let mut bytes = vec![0; 0x40];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bytes[0x20] = 0x40;
        bytes[0x36] = 56;
        bytes[0x38] = 1;
        bytes.extend(header.to_le_bytes());
        bytes
    }

    fn refused(bytes: Option<&[u8]>) -> Option<String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("busybox");
        if let Some(bytes) = bytes {
            std::fs::write(&path, bytes).unwrap();
        }
        let failure = busybox_is_static(&path).err()?;
        assert!(failure.next().contains("busybox-static"));
        Some(failure.to_string().replace(&path.display().to_string(), "PATH"))
    }

    #[test]
    fn busybox_has_to_be_a_static_program() {
        assert_eq!(refused(Some(&program(1))), None);
        assert_eq!(
            refused(Some(&program(3))).as_deref(),
            Some("PATH needs libraries, which the image lacks")
        );
        assert_eq!(refused(Some(b"#!/bin/sh\n")).as_deref(), Some("PATH is not a program"));
        assert!(refused(None).unwrap().starts_with("there is no busybox at PATH: "));
    }

    #[test]
    fn hostile_headers_are_read_without_a_panic() {
        let mut huge = program(3);
        huge[0x20..0x28].fill(0xff);
        huge[0x36..0x3a].fill(0xff);
        assert!(!has_interpreter(&huge));
        for length in 0..huge.len() {
            assert!(!has_interpreter(&huge[..length]));
        }
    }

    #[test]
    fn a_finding_becomes_a_message_with_its_remedy() {
        let finding = Finding::missing("engine", "no answer on /s", "install and start Docker");
        let failure = missing(&finding);
        assert_eq!(failure.to_string(), "engine: no answer on /s");
        assert_eq!(failure.next(), "install and start Docker");
    }
}
