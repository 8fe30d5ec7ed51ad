//! API tokens: the credential of a client that has neither a user on the host nor a certificate.
//!
//! A token names its record, so that finding it takes no search, and ends in 256 random bits. The record holds only its SHA-256, which is
//! compared in constant time. Only a client that presents the whole secret learns why it is refused.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use timestamp::UnixMillis;

use crate::ids::{RunId, TokenId};
use crate::principal::{Principal, Roles, Scope};
use crate::token::TokenHash;

/// Prefix of every token.
const PREFIX: &str = "cfa_";
/// Most bytes of a token.
const MAX_BYTES: usize = 128;

/// Record of a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiToken {
    pub id: TokenId,
    /// Name of the token; its holder is the principal `token:NAME`.
    pub name: String,
    pub roles: Roles,
    /// Profiles whose runs it may access; empty for all.
    pub profiles: Vec<String>,
    /// Runs that it may access; empty for all.
    pub runs: Vec<RunId>,
    /// Networks from which it is accepted; empty for all.
    pub networks: Vec<IpNet>,
    pub created_by: String,
    /// User whose rights its holder has on the host's files: the one who created it.
    pub uid: u32,
    pub gid: u32,
    pub created_at: UnixMillis,
    pub expires_at: UnixMillis,
    pub ended: Option<Ended>,
    pub hash: TokenHash,
}

/// Principal who revoked a token, and the time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    pub by: String,
    pub at: UnixMillis,
}

/// Reason for which an existing token is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApiTokenRefused {
    /// The secret is wrong.
    Wrong,
    Expired,
    Revoked,
    /// The client's address is not in the token's networks.
    Network,
}

/// Returns the id of the record that a token names.
pub fn id_of(token: &str) -> Option<TokenId> {
    let rest = token.strip_prefix(PREFIX).filter(|_| token.len() <= MAX_BYTES)?;
    TokenId::parse(rest.split_once('_')?.0).ok()
}

impl ApiToken {
    /// Creates a secret for the token with this id, and the hash that the record keeps.
    pub fn issue(id: TokenId) -> (String, TokenHash) {
        let secret = operations::encode_base64(&seal::secret());
        let token = format!("{PREFIX}{id}_{}", secret.trim_end_matches('='));
        let hash = TokenHash::of(&token);
        (token, hash)
    }

    /// Checks a `token` that a client presents from an address, or on the Unix socket.
    pub fn check(&self, token: &str, from: Option<IpAddr>, now: UnixMillis) -> Result<(), ApiTokenRefused> {
        if !self.hash.is_of(token) {
            return Err(ApiTokenRefused::Wrong);
        }
        if self.ended.is_some() {
            return Err(ApiTokenRefused::Revoked);
        }
        if self.expires_at <= now {
            return Err(ApiTokenRefused::Expired);
        }
        let within =
            |from: IpAddr| self.networks.iter().any(|network| network.contains(&from.to_canonical()));
        if self.networks.is_empty() || from.is_some_and(within) {
            return Ok(());
        }
        Err(ApiTokenRefused::Network)
    }

    pub fn is_in_force(&self, now: UnixMillis) -> bool {
        self.ended.is_none() && self.expires_at > now
    }

    /// Returns true if the token is limited to profiles or runs.
    pub fn is_narrow(&self) -> bool {
        !self.runs.is_empty() || !self.profiles.is_empty()
    }

    /// Returns the principal of its holder.
    pub fn principal(&self, address: Option<IpAddr>) -> Principal {
        let scope = || Scope { runs: self.runs.clone(), profiles: self.profiles.clone() };
        Principal {
            name: format!("token:{}", self.name),
            uid: self.uid,
            gid: self.gid,
            roles: self.roles,
            run: None,
            scope: self.is_narrow().then(|| Arc::new(scope())),
            address,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use timestamp::UnixMillis;

    use super::{ApiToken, ApiTokenRefused, Ended, id_of};
    use crate::ids::{RunId, TokenId};
    use crate::principal::Roles;

    fn token() -> (ApiToken, String) {
        let id = TokenId::new();
        let (secret, hash) = ApiToken::issue(id);
        let token = ApiToken {
            id,
            name: "ci".into(),
            roles: Roles::all(),
            profiles: vec![],
            runs: vec![],
            networks: vec![],
            created_by: "uid:7".into(),
            uid: 7,
            gid: 8,
            created_at: UnixMillis(1),
            expires_at: UnixMillis(100),
            ended: None,
            hash,
        };
        (token, secret)
    }

    const NOW: UnixMillis = UnixMillis(99);

    #[test]
    fn token_names_its_record_and_needs_its_secret() {
        let (one, secret) = token();
        assert_eq!(id_of(&secret), Some(one.id));
        assert_eq!(one.check(&secret, None, NOW), Ok(()));
        let (other, _) = ApiToken::issue(one.id);
        let long = format!("{secret}{}", "A".repeat(128));
        for bad in [&other, &secret[..secret.len() - 1], "", &long] {
            assert_eq!(one.check(bad, None, NOW), Err(ApiTokenRefused::Wrong), "{bad}");
        }
        for bad in ["", "cfa_", "cfa_x_y", &secret.replace("cfa_", "cft_"), &secret[1..], &long] {
            assert_eq!(id_of(bad), None, "{bad}");
        }
        assert!(secret.rsplit('_').next().unwrap().len() >= 43, "256 bits: {secret}");
        let kept = serde_json::to_string(&one).unwrap();
        assert!(!kept.contains(&secret[45..]), "{kept}");
        assert_eq!(serde_json::from_str::<ApiToken>(&kept).unwrap(), one);
    }

    #[test]
    fn token_ends_when_expired_or_revoked() {
        let (one, secret) = token();
        assert_eq!(one.check(&secret, None, UnixMillis(100)), Err(ApiTokenRefused::Expired));
        let ended = Some(Ended { by: "uid:0".into(), at: UnixMillis(50) });
        let revoked = ApiToken { ended, ..one.clone() };
        assert_eq!(revoked.check(&secret, None, NOW), Err(ApiTokenRefused::Revoked));
        assert!(one.is_in_force(NOW) && !one.is_in_force(UnixMillis(100)) && !revoked.is_in_force(NOW));
        // Nobody finds out by a guess which tokens there were.
        assert_eq!(revoked.check("cfa_x", None, NOW), Err(ApiTokenRefused::Wrong));
    }

    #[test]
    fn token_is_refused_from_other_networks() {
        let (one, secret) = token();
        let networks = vec!["10.1.0.0/16".parse().unwrap(), "2001:db8::/32".parse().unwrap()];
        let one = ApiToken { networks, ..one };
        let from = |address: &str| one.check(&secret, Some(address.parse::<IpAddr>().unwrap()), NOW);
        for near in ["10.1.2.3", "::ffff:10.1.2.3", "2001:db8::1"] {
            assert_eq!(from(near), Ok(()), "{near}");
        }
        for far in ["10.2.0.1", "127.0.0.1", "2001:db9::1", "::ffff:10.2.0.1"] {
            assert_eq!(from(far), Err(ApiTokenRefused::Network), "{far}");
        }
        assert_eq!(one.check(&secret, None, NOW), Err(ApiTokenRefused::Network));
    }

    #[test]
    fn token_holder_has_its_scope_and_the_files_of_its_maker() {
        let (one, _) = token();
        let holder = one.principal(None);
        assert_eq!((holder.name.as_str(), holder.uid, holder.gid), ("token:ci", 7, 8));
        assert!(holder.scope.is_none() && !one.is_narrow());
        let run = RunId::new();
        let narrow = ApiToken { runs: vec![run], ..one };
        assert_eq!(narrow.principal(None).scope.unwrap().runs, [run]);
    }
}
