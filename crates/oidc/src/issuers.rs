//! The issuers of the configuration, and the check of a token against them.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use identity::Principal;
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, Header, Validation, dangerous, decode, decode_header};
use serde::Deserialize;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use webhook::Tls;

use crate::condition::Condition;
use crate::crypto::{self, ALGORITHMS};
use crate::grant::{self, Claims};
use crate::issuer::Issuer;
use crate::refused::Refused;
use crate::source::KeySource;
use crate::{claims, keys};

/// Longest token in bytes.
const MAX_BYTES: usize = 8 * 1_024;
/// Longest id of a key in bytes.
const MAX_KEY_ID: usize = 256;
/// Time limit for refreshing all keys when an operator asks for their condition.
const LOOK: Duration = Duration::from_secs(5);
/// Accepted types of a token (RFC 7519, 5.1, and RFC 9068, 2.1). A token of another type is refused.
const TYPES: [&str; 2] = ["JWT", "at+jwt"];

/// Holder of a valid token.
#[derive(Debug)]
pub struct Holder {
    pub principal: Principal,
    /// Time until the token is no longer valid.
    pub left: Duration,
    /// Groups that the token names, each with the name of its issuer before it: `ISSUER:GROUP`. `None` if it lacks the claim.
    pub groups: Option<Vec<String>>,
}

/// Returns true if a bearer token has the form of an issuer's token. API tokens and run tokens do not have it.
pub fn looks_like_one(token: &str) -> bool {
    token.bytes().filter(|byte| *byte == b'.').count() == 2
}

/// The issuers whose tokens are accepted.
#[derive(Debug, Default)]
pub struct Issuers(Vec<Arc<Known>>);

#[derive(Debug)]
struct Known {
    issuer: Issuer,
    keys: KeySource,
    /// Checks that `jsonwebtoken` does, without the algorithm.
    validation: Validation,
}

/// Claim that is read before the signature is checked, to find the issuer's keys.
#[derive(Deserialize)]
struct Unverified {
    iss: String,
}

impl Issuers {
    /// Reads the keys that are in files. The error contains the issuer's index and the problem with its keys.
    pub fn open(issuers: Vec<Issuer>) -> Result<Self, (usize, String)> {
        crypto::install();
        let open = |(index, issuer): (usize, Issuer)| {
            let keys = KeySource::open(issuer.name.clone(), issuer.keys.clone());
            let keys = keys.map_err(|why| (index, why))?;
            let mut validation = Validation::new(Algorithm::RS256);
            validation.required_spec_claims = ["iss", "aud", "exp"].map(str::to_owned).into();
            validation.iss = Some(HashSet::from([issuer.issuer.clone()]));
            validation.aud = Some(issuer.audiences.iter().cloned().collect());
            validation.leeway = issuer.leeway.as_secs();
            validation.validate_nbf = true;
            Ok(Arc::new(Known { issuer, keys, validation }))
        };
        issuers.into_iter().enumerate().map(open).collect::<Result<_, _>>().map(Self)
    }

    /// Opens issuers like [`Self::open`]. One that `earlier` has with the same settings keeps its keys.
    pub fn open_after(issuers: Vec<Issuer>, earlier: &Self) -> Result<Self, (usize, String)> {
        let mut opened = Self::open(issuers)?;
        for known in &mut opened.0 {
            if let Some(before) = earlier.0.iter().find(|before| before.issuer == known.issuer) {
                *known = before.clone();
            }
        }
        Ok(opened)
    }

    /// Returns true if there are no issuers.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Refreshes the keys of all issuers until `stop`.
    pub fn keep_fresh(&self, tls: &Tls, stop: &CancellationToken) {
        for known in &self.0 {
            let (known, tls, stop) = (known.clone(), tls.clone(), stop.clone());
            tokio::spawn(async move {
                stop.run_until_cancelled(known.keys.keep_fresh(&tls)).await;
            });
        }
    }

    /// Refreshes the keys of each issuer once. Returns the problems with the issuers' indexes.
    pub async fn look(&self, tls: &Tls) -> Vec<(usize, String)> {
        let mut wrong = Vec::new();
        for (index, known) in self.0.iter().enumerate() {
            wrong.extend(known.keys.look(tls).await.err().map(|why| (index, why)));
        }
        wrong
    }

    /// Fetches the keys of all issuers that have none, at the same time. Ignores failures, which [`Self::keep_fresh`] reports.
    pub async fn fetch_missing(&self, tls: &Tls) {
        let mut looks = JoinSet::new();
        for known in self.0.iter().filter(|known| known.keys.current().is_none()) {
            let (known, tls) = (known.clone(), tls.clone());
            looks.spawn(async move { known.keys.look(&tls).await });
        }
        while looks.join_next().await.is_some() {}
    }

    /// Returns the condition of each issuer's keys. Keys that were not refreshed in the last ten seconds are refreshed first.
    ///
    /// [`Self::keep_fresh`] must be running, because it does the refresh. Takes five seconds at most.
    pub async fn examine(&self) -> Vec<Condition> {
        let until = Instant::now() + LOOK;
        let looks: Vec<_> = self.0.iter().filter_map(|known| known.keys.ask()).collect();
        for mut look in looks {
            // A refresh that takes longer is reported as one without an answer.
            let _ = timeout_at(until, look.changed()).await;
        }
        self.0.iter().map(|known| known.keys.condition()).collect()
    }

    /// Checks a token that a client presents from an address, or on the Unix socket, and returns its holder.
    pub fn check(&self, token: &str, address: Option<IpAddr>, now: SystemTime) -> Result<Holder, Refused> {
        let header = header(token).ok_or(Refused::Wrong)?;
        let Unverified { iss } = dangerous::insecure_decode_claims(token).map_err(|_| Refused::Wrong)?;
        let known = self.0.iter().find(|known| known.issuer.issuer == iss).ok_or(Refused::Wrong)?;
        let claims = known.verify(token, &header)?;
        let left = claims::left(&claims, &known.issuer, now)?;
        let subject = claims::subject(&claims, &known.issuer.principal_claim)?;
        let name = format!("oidc:{}:{subject}", known.issuer.name);
        let principal = grant::principal(name, &known.issuer.grants, &claims);
        let path = &known.issuer.groups_claim;
        let named =
            || grant::texts(&claims, path).map(|group| format!("{}:{group}", known.issuer.name)).collect();
        // Without a claim in the configuration nobody has groups.
        let groups = (path.is_empty() || !grant::is_missing(&claims, path)).then(named);
        Ok(Holder { principal: Principal { address, ..principal }, left, groups })
    }
}

impl Known {
    /// Returns the claims of a token whose signature, issuer, audience and time are valid.
    fn verify(&self, token: &str, header: &Header) -> Result<Claims, Refused> {
        let keys: Arc<keys::Keys> = self.keys.current().ok_or(Refused::NoKeys)?;
        let Some(key) = keys.pick(header.kid.as_deref(), header.alg) else {
            return Err(if self.keys.ask_again() { Refused::UnknownKey } else { Refused::Wrong });
        };
        let validation = Validation { algorithms: vec![header.alg], ..self.validation.clone() };
        let decoded = decode::<Claims>(token, key, &validation).map_err(|error| match error.kind() {
            ErrorKind::ExpiredSignature => Refused::Expired,
            ErrorKind::ImmatureSignature => Refused::NotYet,
            ErrorKind::InvalidAudience => Refused::Audience,
            ErrorKind::MissingRequiredClaim(claim) if claim == "aud" => Refused::Audience,
            ErrorKind::MissingRequiredClaim(claim) if claim == "exp" => Refused::Undated,
            ErrorKind::InvalidClaimFormat(_) => Refused::Undated,
            _ => Refused::Wrong,
        })?;
        // `jsonwebtoken` also accepts a list of issuers here; it is refused.
        let is_own =
            decoded.claims.get("iss").and_then(|issuer| issuer.as_str()) == Some(&self.issuer.issuer);
        if is_own { Ok(decoded.claims) } else { Err(Refused::Wrong) }
    }
}

/// Decodes a header. `None` if it is malformed, or requires a feature that is not supported here.
fn header(token: &str) -> Option<Header> {
    if token.len() > MAX_BYTES || !looks_like_one(token) {
        return None;
    }
    let header = decode_header(token).ok()?;
    let is_type = |written: &String| {
        let written = written
            .get(.."application/".len())
            .filter(|start| start.eq_ignore_ascii_case("application/"))
            .map_or(written.as_str(), |start| &written[start.len()..]);
        TYPES.iter().any(|known| known.eq_ignore_ascii_case(written))
    };
    let is_plain = header.crit.is_none() && header.enc.is_none() && header.zip.is_none();
    let is_known = ALGORITHMS.contains(&header.alg) && header.typ.as_ref().is_none_or(is_type);
    let is_short = header.kid.as_ref().is_none_or(|id| id.len() <= MAX_KEY_ID);
    (is_plain && is_known && is_short).then_some(header)
}

#[cfg(test)]
#[path = "issuers_tests.rs"]
mod tests;
