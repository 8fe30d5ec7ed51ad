#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![allow(missing_docs)] // only `coffer tls` calls it

mod authority;
mod directory;

use std::io;
use std::path::PathBuf;

use jiff::civil::Date;
use thiserror::Error;

pub use directory::{DAYS, Directory, client_name};

/// The reason that certificates are not made.
#[derive(Debug, Error)]
pub enum CertificateError {
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("{} is not empty: name a new directory", .0.display())]
    NotEmpty(PathBuf),
    /// A directory without an authority.
    #[error(transparent)]
    NoAuthority(Box<Self>),
    #[error("the authority's certificate cannot be read")]
    Unreadable,
    #[error("the authority is valid until {0} only")]
    Expired(Date),
    #[error("the certificate cannot be made: {0}")]
    Unmade(#[from] rcgen::Error),
    /// A number of days beyond the calendar.
    #[error("{0}")]
    Days(jiff::Error),
}

impl CertificateError {
    /// Returns the step that helps.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::NotEmpty(_) => Some("`coffer tls rotate` renews the certificates of one"),
            Self::NoAuthority(_) => Some("`coffer tls init` creates such a directory"),
            Self::Expired(_) => Some("`coffer tls init` creates a new one in another directory"),
            Self::File { .. } | Self::Unreadable | Self::Unmade(_) | Self::Days(_) => None,
        }
    }
}
