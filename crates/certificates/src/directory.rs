//! The directory that `coffer tls` manages. Only the owner can read the keys, and files are replaced atomically.

use std::fs::DirBuilder;
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use crate::CertificateError;
use crate::authority::{Authority, For, Pair};
use cofferdam_client::{CA, CERTIFICATE, KEY};

const HOSTS: &str = "hosts";

/// Number of days for which a certificate is valid by default.
pub const DAYS: u32 = 365;

pub struct Directory(PathBuf);

impl Directory {
    /// Makes a new directory with a new authority.
    pub fn make(path: &Path) -> Result<Self, CertificateError> {
        let path = std::path::absolute(path).map_err(wrong(path))?;
        if path.read_dir().is_ok_and(|mut entries| entries.next().is_some()) {
            return Err(CertificateError::NotEmpty(path));
        }
        let directory = Self(path);
        put_pair(&directory.authority_directory(), &Authority::make()?)?;
        Ok(directory)
    }

    pub fn open(path: &Path) -> Result<Self, CertificateError> {
        let path = std::path::absolute(path).map_err(wrong(path))?;
        let directory = Self(path);
        directory.authority().map_err(|error| CertificateError::NoAuthority(Box::new(error)))?;
        Ok(directory)
    }

    pub fn server(&self) -> PathBuf {
        self.0.join("server")
    }

    pub fn client(&self, name: &str) -> PathBuf {
        self.0.join("clients").join(name)
    }

    fn authority_directory(&self) -> PathBuf {
        self.0.join("ca")
    }

    fn authority(&self) -> Result<Authority, CertificateError> {
        let directory = self.authority_directory();
        let (certificate, key) = (read(&directory.join(CERTIFICATE))?, read(&directory.join(KEY))?);
        Authority::of(&Pair { certificate, key })
    }

    /// Returns the names of the daemon.
    pub fn hosts(&self) -> Result<Vec<String>, CertificateError> {
        Ok(read(&self.server().join(HOSTS))?.lines().map(str::to_owned).collect())
    }

    pub fn clients(&self) -> Result<Vec<String>, CertificateError> {
        let clients = self.0.join("clients");
        let entries = match clients.read_dir() {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(wrong(&clients)(error)),
        };
        let mut names: Vec<_> =
            entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.retain(|name| client_name(name).is_ok());
        names.sort();
        Ok(names)
    }

    /// Issues a new key and certificate for the daemon, and copies the authority's certificate beside them.
    pub fn issue_server(&self, hosts: &[String], days: u32) -> Result<(), CertificateError> {
        let pair = self.authority()?.sign(&For::Server(hosts), days)?;
        self.put(&self.server(), &pair)?;
        replace(&self.server().join(HOSTS), &(hosts.join("\n") + "\n"))
    }

    /// Issues a new key and certificate for a client in the same way.
    pub fn issue_client(&self, name: &str, days: u32) -> Result<(), CertificateError> {
        let pair = self.authority()?.sign(&For::Client(name), days)?;
        self.put(&self.client(name), &pair)
    }

    fn put(&self, directory: &Path, pair: &Pair) -> Result<(), CertificateError> {
        put_pair(directory, pair)?;
        replace(&directory.join(CA), &read(&self.authority_directory().join(CERTIFICATE))?)
    }
}

fn put_pair(directory: &Path, pair: &Pair) -> Result<(), CertificateError> {
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700).create(directory).map_err(wrong(directory))?;
    replace(&directory.join(KEY), &pair.key)?;
    replace(&directory.join(CERTIFICATE), &pair.certificate)
}

fn read(path: &Path) -> Result<String, CertificateError> {
    std::fs::read_to_string(path).map_err(wrong(path))
}

fn replace(path: &Path, contents: &str) -> Result<(), CertificateError> {
    atomic_file::replace(path, |file| file.write_all(contents.as_bytes())).map_err(wrong(path))
}

fn wrong(path: &Path) -> impl FnOnce(io::Error) -> CertificateError {
    let path = path.to_owned();
    |source| CertificateError::File { path, source }
}

/// Parses the name of a client, which the daemon reads from its certificate.
pub fn client_name(text: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if !text.is_empty() && text.len() <= 64 && text.chars().all(plain) && !text.starts_with('.') {
        return Ok(text.to_owned());
    }
    Err("must be 1 to 64 characters of [A-Za-z0-9._-], and not begin with a dot".to_owned())
}
