//! Reasons that a run got a new container.

use serde::{Deserialize, Serialize};
use wire::v1;

/// Reason that a run got no container that waited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ColdBecause {
    /// The pool has no entry for its profile and image.
    NoPool,
    /// This host has no warm containers.
    UnsupportedHost,
    /// A container with its own kernel takes no mounts later.
    OwnKernel,
    RootInUserNamespace,
    /// It has a directory at `/pkg`.
    PkgPath,
    /// No run needed such a container lately. The next one finds it.
    FirstOfItsKind,
    /// All that waited were taken.
    NoneWaits,
    /// The one that waited was not as it had been, or did not take what the run brings.
    NotUsable,
    /// Its tenant has had its share of the pool in this minute.
    TenantShare,
}

impl ColdBecause {
    pub fn to_wire(self) -> v1::run::ColdBecause {
        use v1::run::ColdBecause as Wire;
        match self {
            Self::NoPool => Wire::NoPool,
            Self::UnsupportedHost => Wire::UnsupportedHost,
            Self::OwnKernel => Wire::OwnKernel,
            Self::RootInUserNamespace => Wire::RootInUserNamespace,
            Self::PkgPath => Wire::PkgPath,
            Self::FirstOfItsKind => Wire::FirstOfItsKind,
            Self::NoneWaits => Wire::NoneWaits,
            Self::NotUsable => Wire::NotUsable,
            Self::TenantShare => Wire::TenantShare,
        }
    }
}
