//! Files into a run and out of it.

use std::io::Read as _;
use std::path::Path;

use sha2::{Digest as _, Sha256};
use tonic::Status;
use wire::v1::{self, BeginUpload, UploadFileResponse};

use crate::run::RunHandle;

/// Bytes of one message.
const PIECE: usize = 1 << 20;

/// A file that came out of a run, as far as it came.
#[derive(Debug, Default)]
pub struct Downloaded {
    pub begun: Option<v1::DownloadBegun>,
    pub data: Vec<u8>,
    pub ended: Option<v1::DownloadEnded>,
}

/// SHA-256 in lower-case hex.
pub fn sha256(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// An archive of these files.
pub fn archive<N: AsRef<Path>>(files: &[(N, &[u8])]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        builder.append_data(&mut header, name, *content).unwrap();
    }
    builder.into_inner().unwrap()
}

/// What the regular files of an archive have, in their order.
pub fn contents(archive: &[u8]) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    for entry in tar::Archive::new(archive).entries().unwrap() {
        let mut entry = entry.unwrap();
        if entry.header().entry_type().is_file() {
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            found.push(content);
        }
    }
    found
}

impl RunHandle {
    /// A message that begins an upload.
    pub fn begin(&self, path: &str) -> BeginUpload {
        BeginUpload { run_id: self.id().to_owned(), path: path.to_owned(), ..Default::default() }
    }

    /// Uploads a file as asked, and says its SHA-256 where neither that nor its size is given.
    pub async fn upload_with(
        &mut self,
        mut begin: BeginUpload,
        content: &[u8],
    ) -> Result<UploadFileResponse, Status> {
        use v1::upload_file_request::Piece;
        if begin.size_bytes.is_none() && begin.sha256.is_empty() {
            begin.sha256 = sha256(content);
        }
        let pieces = std::iter::once(Piece::Begin(begin))
            .chain(content.chunks(PIECE).map(|piece| Piece::Data(piece.to_vec().into())));
        let messages: Vec<_> = pieces.map(|piece| v1::UploadFileRequest { piece: Some(piece) }).collect();
        Ok(self.clients.files.upload_file(tokio_stream::iter(messages)).await?.into_inner())
    }

    /// Uploads a file, which must succeed.
    pub async fn upload(&mut self, path: &str, content: &[u8]) -> v1::WriteResult {
        let begin = self.begin(path);
        self.upload_with(begin, content).await.unwrap().result.expect("it is written")
    }

    /// Uploads an archive and has it unpacked.
    pub async fn upload_archive(&mut self, path: &str, archive: &[u8]) -> Result<v1::WriteResult, Status> {
        use v1::upload_archive_request::Piece;
        let pieces = std::iter::once(Piece::Begin(self.begin(path)))
            .chain(archive.chunks(PIECE).map(|piece| Piece::Data(piece.to_vec().into())));
        let messages: Vec<_> = pieces.map(|piece| v1::UploadArchiveRequest { piece: Some(piece) }).collect();
        let answer = self.clients.files.upload_archive(tokio_stream::iter(messages)).await?;
        Ok(answer.into_inner().result.expect("it is unpacked"))
    }

    /// Downloads a file from a byte on.
    pub async fn download(&mut self, path: &str, offset: u64) -> Result<Downloaded, Status> {
        use v1::download_file_response::Piece;
        let request = v1::DownloadFileRequest {
            run_id: self.id().to_owned(),
            path: path.to_owned(),
            offset,
            ..Default::default()
        };
        let mut stream = self.clients.files.download_file(request).await?.into_inner();
        let mut all = Downloaded::default();
        while let Some(message) = stream.message().await? {
            match message.piece.unwrap() {
                Piece::Begin(begun) => all.begun = Some(begun),
                Piece::Data(data) => all.data.extend_from_slice(&data),
                Piece::End(ended) => all.ended = Some(ended),
            }
        }
        Ok(all)
    }

    /// Downloads a directory.
    pub async fn download_archive(&mut self, path: &str) -> Result<Downloaded, Status> {
        use v1::download_archive_response::Piece;
        let request = v1::DownloadArchiveRequest {
            run_id: self.id().to_owned(),
            path: path.to_owned(),
            ..Default::default()
        };
        let mut stream = self.clients.files.download_archive(request).await?.into_inner();
        let mut all = Downloaded::default();
        while let Some(message) = stream.message().await? {
            match message.piece.unwrap() {
                Piece::Begin(begun) => all.begun = Some(begun),
                Piece::Data(data) => all.data.extend_from_slice(&data),
                Piece::End(ended) => all.ended = Some(ended),
            }
        }
        Ok(all)
    }
}
