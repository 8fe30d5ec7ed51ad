//! `read` for a download: sends a file or a tree piece by piece, in constant memory.
//!
//! The output begins with a header: the size of the file in 8 bytes and its permission bits in 4, both big-endian.

use std::io::{self, ErrorKind, Read as _, Write};

use jail::{Access, AccessError, Jail, OpenError, OpenErrorKind, RegularFile};
use operations::{
    Bounds, Digest, OpResult, Outcome, Read, ReadPart, ReadResult, Reason, ToolFailure, Transfer,
};

use super::file::refused;
use crate::Cancel;
use crate::archive::pack;

/// Bytes that are read and sent at once.
pub const PIECE: usize = 64 * 1024;

/// Sends the file or tree of a download. `output` fails when its reader has gone.
pub fn send(jail: &Jail, read: &Read, bounds: &Bounds, cancel: &Cancel, output: &mut dyn Write) -> Outcome {
    match read.transfer {
        Some(Transfer::Archive) => send_archive(jail, read, bounds, cancel, output),
        Some(Transfer::File) | None => send_file(jail, read, bounds, cancel, output),
    }
}

fn header(size: u64, mode: u32) -> [u8; 12] {
    let mut header = [0; 12];
    header[..8].copy_from_slice(&size.to_be_bytes());
    header[8..].copy_from_slice(&mode.to_be_bytes());
    header
}

/// Sends the file as it was when it was opened. Bytes that are appended meanwhile are left out.
fn send_file(jail: &Jail, read: &Read, bounds: &Bounds, cancel: &Cancel, output: &mut dyn Write) -> Outcome {
    let opened = jail.readable(&read.path)?.open_file().map_err(|error| match &error {
        AccessError::Open(OpenError { kind: OpenErrorKind::IsADirectory, .. }) => {
            refused(&read.path, error).with("is", "directory")
        }
        _ => refused(&read.path, error),
    })?;
    let RegularFile { mut file, meta } = opened;
    let path = read.path.excerpt();
    if meta.size > bounds.max_transfer_bytes {
        let most = bounds.max_transfer_bytes;
        let message = format!("{path} has {} bytes, more than the {most} that may be transferred", meta.size);
        return Err(ToolFailure::new(Reason::ReadLimit, message).with("max_transfer_bytes", most.to_string()));
    }
    let from = if let ReadPart::Bytes { offset, .. } = read.part { offset } else { 0 };
    if from > meta.size {
        let message = format!("{path} has {} bytes, and byte {from} is beyond its end", meta.size);
        return Err(ToolFailure::new(Reason::InvalidArgument, message));
    }
    output.write_all(&header(meta.size, meta.mode & 0o777)).map_err(|error| not_taken(&error))?;
    let (mut digest, mut at, mut sent) = (Digest::default(), 0, 0);
    let mut block = vec![0; PIECE];
    while at < meta.size {
        cancel.check().map_err(|stopped| stopped.failure(format!("{path}: {sent} bytes were sent")))?;
        // Bytes before the requested offset are only hashed.
        let end = if at < from { from } else { meta.size };
        let most = usize::try_from(end - at).unwrap_or(PIECE).min(PIECE);
        let read = match file.read(&mut block[..most]) {
            Ok(0) => {
                let message = format!("{path} became shorter while it was read; try again");
                return Err(ToolFailure::new(Reason::PreconditionFailed, message));
            }
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => {
                return Err(ToolFailure::new(Reason::Internal, format!("{path}: cannot be read: {error}")));
            }
        };
        digest.update(&block[..read]);
        if at >= from {
            output.write_all(&block[..read]).map_err(|error| not_taken(&error))?;
            sent += read as u64;
        }
        at += read as u64;
    }
    output.flush().map_err(|error| not_taken(&error))?;
    Ok(OpResult::Read(ReadResult {
        path: read.path.to_string(),
        encoding: read.encoding.into(),
        size_bytes: meta.size,
        sha256: digest.hex(),
        sent_bytes: sent,
        ..ReadResult::default()
    }))
}

fn send_archive(
    jail: &Jail,
    read: &Read,
    bounds: &Bounds,
    cancel: &Cancel,
    output: &mut dyn Write,
) -> Outcome {
    let mode = jail.readable(&read.path)?.metadata()?.mode & 0o777;
    output.write_all(&header(0, mode)).map_err(|error| not_taken(&error))?;
    let mut archive = Archive { digest: Digest::default(), bytes: 0, cancel, output };
    let packed = pack(jail, &read.path, Access::Read, bounds.max_transfer_bytes, &mut archive);
    // If the time is over or the reader has gone, that is the cause of the failed write.
    cancel.check().map_err(|stopped| {
        stopped.failure(format!("{}: {} bytes were sent", read.path.excerpt(), archive.bytes))
    })?;
    let packed = packed?;
    Ok(OpResult::Read(ReadResult {
        path: read.path.to_string(),
        encoding: read.encoding.into(),
        size_bytes: packed.bytes,
        sha256: archive.digest.hex(),
        sent_bytes: archive.bytes,
        entries: packed.entries,
        left_out: packed.left_out,
        ..ReadResult::default()
    }))
}

fn not_taken(error: &io::Error) -> ToolFailure {
    ToolFailure::new(Reason::Cancelled, format!("the download was cancelled: {error}"))
}

/// Archive that is being sent.
struct Archive<'a> {
    digest: Digest,
    bytes: u64,
    cancel: &'a Cancel,
    output: &'a mut dyn Write,
}

impl Write for Archive<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.cancel.is_cancelled() {
            return Err(ErrorKind::TimedOut.into());
        }
        self.output.write_all(bytes)?;
        self.digest.update(bytes);
        self.bytes += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }
}
