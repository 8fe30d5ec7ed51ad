//! One subscription, as it is stored.

use serde::{Deserialize, Serialize};
use timestamp::UnixMillis;

use super::{LIFE, encrypt};

/// A subscription as a browser makes it. Everything in it is hostile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    pub name: String,
    pub endpoint: String,
    pub p256dh: Vec<u8>,
    pub auth: Vec<u8>,
}

/// A browser that gets notices.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subscription {
    /// UUIDv7.
    pub id: String,
    pub principal: String,
    pub name: String,
    /// Host of the push service.
    pub host: String,
    /// URL of the push service. Its holder can send to the browser, so it is never shown.
    pub(super) endpoint: String,
    pub(super) keys: Keys,
    pub created_at: UnixMillis,
    pub expires_at: UnixMillis,
}

impl Subscription {
    /// Returns the time at which its principal made or renewed it.
    pub(super) fn renewed_at(&self) -> UnixMillis {
        UnixMillis(self.expires_at.0.saturating_sub(LIFE))
    }
}

impl std::fmt::Debug for Subscription {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Subscription({} of {} on {})", self.id, self.principal, self.host)
    }
}

/// Keys of a browser (RFC 8291, section 2).
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Keys {
    /// Uncompressed point of P-256, hex.
    pub(super) p256dh: String,
    /// Secret of the subscription, hex.
    pub(super) auth: String,
}

impl Keys {
    /// Checks the keys of a browser: the point has to be one of the curve.
    pub(super) fn parse(p256dh: &[u8], auth: &[u8]) -> Result<Self, (&'static str, &'static str)> {
        if auth.len() != encrypt::AUTH {
            return Err(("auth", "must have 16 bytes"));
        }
        if !encrypt::is_point(p256dh) {
            return Err(("p256dh", "must be an uncompressed point of P-256, 65 bytes"));
        }
        Ok(Self { p256dh: hex::encode(p256dh), auth: hex::encode(auth) })
    }
}
