//! The default image, made here from the host's static busybox, without any registry.
//!
//! It has one layer with one program, `/bin/busybox`, that acts as the applet by whose name it is called. The same program always gives the
//! same tar, byte for byte. So the image can be verified by content: the digest of its only layer is the digest of the tar, whatever its
//! tag, labels or engine.

use std::io::{self, Write};

use busybox::Busybox;
use bytes::Bytes;
use jail::RootMode;
use sha2::{Digest, Sha256};
use tar::{Builder, EntryType, Header};

use crate::docker::Engine;
use crate::engine::{EngineError, ImageFacts, ImageRefused, ImportChanges, UsableImage};
use crate::etc;
use crate::ids::{ImageReference, RunUser};

/// Mount points and directories that programs expect. All belong to root.
const DIRECTORIES: [&str; 11] =
    [".cofferdam", "bin", "dev", "etc", "pkg", "proc", "state", "sys", "tmp", "usr", "workspace"];

const LABEL_IMAGE: &str = "io.cofferdam.image";
/// Label with the digest of the program alone.
const LABEL_BUSYBOX: &str = "io.cofferdam.busybox";

/// Reason why there is no default image.
#[derive(Debug, thiserror::Error)]
pub enum DefaultImageError {
    /// The archive could not be written, for lack of memory or because a name is too long for the format.
    #[error("cannot make the default image")]
    Archive(#[source] io::Error),
    /// The engine refused it.
    #[error("cannot import the default image")]
    Engine(#[from] EngineError),
    /// The image found in the engine after the import is a different one.
    #[error("the engine's `{reference}` is not the default image: its layer is {found}, not {wanted}")]
    Mismatch {
        reference: String,
        found: String,
        /// Digest of the imported layer.
        wanted: String,
    },
    /// It declares something that runs may not have.
    #[error("the default image is unusable")]
    Refused(#[from] ImageRefused),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefaultImage {
    /// `cofferdam/default:` and twelve digits of the digest.
    pub reference: ImageReference,
    pub image: UsableImage,
    /// Digest of the busybox that it is made from, `sha256:…`.
    pub busybox: String,
}

/// Returns the root file system as an uncompressed tar. It is sorted, belongs to root, and all times are the epoch.
fn default_image_tar(busybox: &Busybox) -> io::Result<Vec<u8>> {
    write_tar(busybox, Vec::with_capacity(busybox.program().len() + 512 * 1024))
}

/// Returns the SHA-256 of that tar in hex. Most starts need only this, because the engine has the image already.
fn default_image_digest(busybox: &Busybox) -> io::Result<String> {
    Ok(hex::encode(write_tar(busybox, Hashing(Sha256::new()))?.0.finalize()))
}

struct Hashing(Sha256);

impl Write for Hashing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn write_tar<W: Write>(busybox: &Busybox, to: W) -> io::Result<W> {
    let mut tar = Builder::new(to);
    for name in DIRECTORIES {
        let mode = if name == "tmp" { 0o1777 } else { 0o755 };
        entry(&mut tar, &format!("{name}/"), EntryType::Directory, mode, &[])?;
    }
    entry(&mut tar, "bin/busybox", EntryType::Regular, 0o755, busybox.program())?;
    for applet in busybox.applets().iter().filter(|name| *name != "busybox") {
        link(&mut tar, &format!("bin/{applet}"), "busybox")?;
    }
    // Used when the image is started without a daemon, which mounts the same files.
    let (group, passwd) =
        (etc::group(RunUser::DEFAULT), etc::passwd(RunUser::DEFAULT, RootMode::ReadOnly.home()));
    entry(&mut tar, "etc/group", EntryType::Regular, 0o644, group.as_bytes())?;
    entry(&mut tar, "etc/passwd", EntryType::Regular, 0o644, passwd.as_bytes())?;
    link(&mut tar, "usr/bin", "../bin")?;
    tar.into_inner()
}

fn header(kind: EntryType, mode: u32, size: u64) -> Header {
    let mut header = Header::new_ustar();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header
}

fn entry(
    tar: &mut Builder<impl Write>,
    path: &str,
    kind: EntryType,
    mode: u32,
    data: &[u8],
) -> io::Result<()> {
    let mut header = header(kind, mode, u64::try_from(data.len()).map_err(io::Error::other)?);
    header.set_path(path)?;
    tar.append(&summed(header)?, data)
}

fn link(tar: &mut Builder<impl Write>, path: &str, target: &str) -> io::Result<()> {
    let mut header = header(EntryType::Symlink, 0o777, 0);
    header.set_path(path)?;
    header.set_link_name(target)?;
    tar.append(&summed(header)?, io::empty())
}

/// Writes the checksum in the usual form: six digits, a zero and a space.
///
/// Headers that are written anew have it, so that the layer keeps its digest when an image with it is copied to another engine.
fn summed(mut header: Header) -> io::Result<Header> {
    header.set_cksum();
    let sum = format!("{:06o}\0 ", header.cksum()?);
    header.as_mut_bytes()[148..156].copy_from_slice(sum.as_bytes());
    Ok(header)
}

/// Finds the default image in the engine or imports it. Either way the image is verified by content.
pub async fn ensure_default(engine: &Engine, busybox: &Busybox) -> Result<DefaultImage, DefaultImageError> {
    let digest = default_image_digest(busybox).map_err(DefaultImageError::Archive)?;
    let wanted = format!("sha256:{digest}");
    let name = format!("cofferdam/default:{}", &digest[..12]);
    let reference =
        ImageReference::parse(&name).map_err(|error| DefaultImageError::Archive(io::Error::other(error)))?;

    let labels = [(LABEL_IMAGE, wanted.as_str()), (LABEL_BUSYBOX, busybox.digest())]
        .map(|(key, value)| (key.into(), value.into()));
    let present = engine.image(&reference).await?.filter(|facts| is_ours(facts, &wanted, &labels));
    let facts = if let Some(facts) = present {
        facts
    } else {
        let tar = default_image_tar(busybox).map_err(DefaultImageError::Archive)?;
        let changes = ImportChanges { labels: labels.to_vec() };
        engine.import_image(Bytes::from(tar), &reference, &changes).await?
    };
    if !is_ours(&facts, &wanted, &labels) {
        return Err(DefaultImageError::Mismatch { reference: name, found: facts.layers.join(", "), wanted });
    }
    Ok(DefaultImage { reference, image: facts.usable()?, busybox: busybox.digest().to_owned() })
}

fn is_ours(facts: &ImageFacts, wanted: &str, labels: &[(String, String)]) -> bool {
    facts.layers == [wanted] && labels.iter().all(|(key, value)| facts.labels.get(key) == Some(value))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Read;

    use super::*;

    /// The host's, with a few bytes more.
    fn busybox(more: &str) -> Busybox {
        let mut program =
            std::fs::read("/bin/busybox").expect("the package busybox-static is part of the set-up");
        program.extend(more.bytes());
        Busybox::parse(program).unwrap()
    }

    #[test]
    fn the_tar_is_the_same_for_the_same_program() {
        let one = default_image_tar(&busybox("program")).unwrap();
        assert_eq!(default_image_digest(&busybox("program")).unwrap(), hex::encode(Sha256::digest(&one)));
        assert_eq!(one, default_image_tar(&busybox("program")).unwrap());
        assert_ne!(one, default_image_tar(&busybox("another")).unwrap());
    }

    #[test]
    fn the_layer_keeps_its_digest_when_it_is_written_anew() {
        let tar = default_image_tar(&busybox("")).unwrap();
        let mut passed = Vec::new();
        crate::pass_filesystem(tar.as_slice(), &mut passed).unwrap();
        assert!(passed == tar);
    }

    #[test]
    fn the_tar_holds_the_files_of_a_run_and_nothing_of_the_builder() {
        let busybox = busybox("program");
        let tar = default_image_tar(&busybox).unwrap();
        let mut found = BTreeMap::new();
        for entry in tar::Archive::new(tar.as_slice()).entries().unwrap() {
            let mut entry = entry.unwrap();
            let header = entry.header();
            assert_eq!((header.uid().unwrap(), header.gid().unwrap(), header.mtime().unwrap()), (0, 0, 0));
            assert_eq!(header.mode().unwrap() & 0o6000, 0);
            let link = entry.link_name().unwrap().map(|link| link.display().to_string());
            let path = entry.path().unwrap().display().to_string();
            let mut data = Vec::new();
            entry.read_to_end(&mut data).unwrap();
            found.insert(path, (link, data));
        }
        for applet in busybox.applets().iter().filter(|name| *name != "busybox") {
            assert_eq!(found[&format!("bin/{applet}")].0.as_deref(), Some("busybox"), "{applet}");
        }
        assert!(found.contains_key("bin/sh") && found.contains_key("bin/["));
        assert_eq!(found["bin/busybox"], (None, busybox.program().to_vec()));
        assert_eq!(found["usr/bin"].0.as_deref(), Some("../bin"));
        assert!(String::from_utf8_lossy(&found["etc/passwd"].1).contains("agent:x:1001:1001"));
        for directory in ["tmp/", "workspace/", "pkg/", "state/", "proc/", "sys/", "dev/", ".cofferdam/"] {
            assert!(found.contains_key(directory), "{directory}");
        }
    }
}
