//! Registration of passkeys.

use std::time::Duration;

use audit::Kind;
use consent_proof::{Assertion, Statement, digest, register};
use operations::Reason;
use refusal::Refusal;
use timestamp::UnixMillis;

use super::challenges::{Nonce, Purpose};
use super::passkey::Passkey;
use super::{Passkeys, no_such_passkey};

/// Time for a registration.
const LIFE: Duration = Duration::from_secs(300);
/// Most passkeys of one principal, and of all.
const MAX_OF_PRINCIPAL: usize = 8;
const MAX: usize = 4_096;
const MAX_NAME: usize = 64;

/// Options for the browser.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    pub challenge: Vec<u8>,
    pub rp_id: String,
    /// The same for each passkey of the principal.
    pub user_id: Vec<u8>,
    /// Passkeys that the principal has, lower-case hex.
    pub exclude: Vec<String>,
    /// Challenge for one of them; empty if there is none.
    pub proof_challenge: Vec<u8>,
}

/// Answer of an authenticator to a request for a new passkey. Everything in it is hostile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub name: String,
    pub authenticator_data: Vec<u8>,
    pub client_data_json: Vec<u8>,
    /// Id of an earlier passkey, and its signature.
    pub proof: Option<(Vec<u8>, Assertion)>,
}

impl Passkeys {
    /// Begins the registration of a passkey.
    pub fn begin_registration(&self, principal: &str) -> Result<Options, Refusal> {
        let party = self.party()?;
        let nonce = self.challenges.begin(principal, Purpose::Registration, LIFE)?;
        let mine: Vec<_> = self.list(Some(principal)).into_iter().map(|mine| mine.credential_id).collect();
        let proof_challenge =
            if mine.is_empty() { Vec::new() } else { statement(principal, &nonce).challenge().to_vec() };
        Ok(Options {
            challenge: nonce.to_vec(),
            rp_id: party.id.clone(),
            user_id: self.store.derived("passkey user", principal.as_bytes()).to_vec(),
            exclude: mine,
            proof_challenge,
        })
    }

    /// Registers a passkey, after it is on record.
    pub async fn register(&self, principal: &str, answer: &Answer) -> Result<Passkey, Refusal> {
        let party = self.party()?;
        let plain = |c: char| c.is_ascii_alphanumeric() || "._- ".contains(c);
        if answer.name.is_empty() || answer.name.len() > MAX_NAME || !answer.name.chars().all(plain) {
            return Err(Refusal::invalid(
                "name",
                format!("must be 1 to {MAX_NAME} characters of [A-Za-z0-9._ -]"),
            ));
        }
        let _changing = self.changing.lock().await;
        let nonce = self.challenges.take(principal, Purpose::Registration)?;
        let mine = self.list(Some(principal));
        let known = self.known.read().len();
        if mine.len() >= MAX_OF_PRINCIPAL || known >= MAX {
            return Err(Refusal::new(
                Reason::Overloaded,
                format!(
                    "a principal has at most {MAX_OF_PRINCIPAL} passkeys, the daemon {MAX}: an operator removes some"
                ),
            ));
        }
        let made = register(&answer.authenticator_data, &answer.client_data_json, &nonce, party)
            .map_err(|flaw| Refusal::invalid("passkey", flaw))?;
        if self.known.read().contains_key(&made.credential_id) {
            return Err(Refusal::new(Reason::AlreadyExists, "this passkey is registered already"));
        }
        let earlier = match (&answer.proof, mine.is_empty()) {
            (_, true) => None,
            (Some((id, assertion)), false) => {
                Some(self.signed_by(principal, id, statement(principal, &nonce), assertion)?.1)
            }
            (None, false) => {
                return Err(Refusal::new(
                    Reason::PermissionDenied,
                    "another passkey has to be signed for with one that you have: use that one, or ask an operator to \
                     remove it (`coffer passkey remove`)",
                )
                .with("proof", "passkey"));
            }
        };
        let passkey = Passkey {
            credential_id: made.credential_id,
            principal: principal.to_owned(),
            name: answer.name.clone(),
            public_key: made.public_key,
            created_at: UnixMillis::now(),
            used_at: None,
            sign_count: made.sign_count,
            ended: false,
        };
        self.record(Kind::PasskeyRegistered, &passkey, principal).await?;
        if let Some(earlier) = earlier {
            self.keep(&earlier).await?;
            self.put(earlier);
        }
        self.keep(&passkey).await?;
        self.put(passkey.clone());
        Ok(passkey)
    }

    pub(crate) fn put(&self, passkey: Passkey) {
        self.known.write().insert(passkey.credential_id.clone(), passkey);
    }

    /// Returns the passkey of this principal with this id.
    pub(crate) fn of(&self, principal: &str, credential_id: &[u8]) -> Result<Passkey, Refusal> {
        let found = self.known.read().get(&hex::encode(credential_id)).cloned();
        found.filter(|it| it.principal == principal && !it.ended).ok_or_else(no_such_passkey)
    }
}

/// Returns the statement with which a passkey vouches for another one. It is none of an approval.
fn statement(principal: &str, nonce: &Nonce) -> Statement {
    Statement {
        approval_id: String::new(),
        digest: String::new(),
        shown: String::new(),
        principal: principal.to_owned(),
        decision: "register".to_owned(),
        comment: digest(""),
        remember: "once".to_owned(),
        nonce: hex::encode(nonce),
    }
}
