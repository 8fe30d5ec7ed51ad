//! Begins and finishes sign-ins.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use admission::{Addresses, ConnectionLimits, FairTurn, FairTurns, Slot, network};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use seal::ProcessSeal;
use serde::Deserialize;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};
use url::form_urlencoded::{Serializer, byte_serialize};
use webhook::{Tls, post_form};

use crate::failed::{Failed, refused};
use crate::id_token;
use crate::pending::Pending;
use crate::provider::{LARGEST, PATIENCE, Provider};
use crate::settings::{Client, SignIn};
use crate::spent::Spent;

/// Time for which a discovery document is used, and for which a failure to fetch it is.
const KNOWN: Duration = Duration::from_secs(3_600);
const FAILED: Duration = Duration::from_secs(5);
/// Requests for tokens at the same time, of all issuers, and the wait for a turn.
const TURNS: usize = 8;
const WAIT: Duration = Duration::from_secs(5);
/// Sign-ins that may have a turn or wait for one at the same time. Behind one proxy, browsers have one address.
const FINISHING: ConnectionLimits =
    ConnectionLimits { connections: 1_024, per_address: 16, per_second: 10, spare: 0 };
/// Longest code of an issuer, bytes.
const LONGEST_CODE: usize = 4_096;

/// The issuers at which people sign in.
pub struct SignIns {
    issuers: Vec<Issuer>,
    /// Path and origin of the console to which issuers send browsers back.
    redirect_uri: String,
    tls: Tls,
    /// Turns of addresses, so that an issuer that is slow for one holds up no other.
    turns: FairTurns,
    /// Bounds the sign-ins that each address finishes.
    addresses: Addresses,
    spent: Spent,
    /// Seals the cookies, so that the daemon asks an issuer only about sign-ins that it has begun.
    seal: ProcessSeal,
}

/// The endpoints of an issuer, or the reason why there are none.
type Found = Result<Arc<Provider>, String>;

struct Issuer {
    client: Client,
    /// The endpoints, or the reason why there are none, and the time of the last look.
    provider: Mutex<Option<(Instant, Found)>>,
}

/// A sign-in that has begun.
#[derive(Debug)]
pub struct Begun {
    /// Page of the issuer.
    pub url: String,
    /// Cookie for the browser, which has to be sent back with its answer.
    pub cookie: String,
}

/// The answer of an issuer, as the browser brings it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Answered<'a> {
    pub state: &'a str,
    pub code: &'a str,
    pub error: &'a str,
    pub description: &'a str,
    /// Issuer that has answered; empty if the answer does not say so.
    pub issuer: &'a str,
}

/// A sign-in that has succeeded at the issuer.
pub struct Finished {
    /// ID token. Its signature is not checked yet.
    pub token: String,
    /// Path of the console that was asked for. It came with the cookie.
    pub to: String,
}

#[derive(Deserialize)]
struct Granted {
    id_token: Option<String>,
}

#[derive(Deserialize)]
struct Denied {
    #[serde(default)]
    error: String,
    #[serde(default)]
    error_description: String,
}

impl SignIns {
    /// Opens the issuers of the configuration. None is asked before somebody signs in there. `None` without any.
    pub fn open(entries: &[SignIn], redirect_uri: String) -> Result<Option<Self>, String> {
        if entries.is_empty() {
            return Ok(None);
        }
        let tls = Tls::new().map_err(|why| format!("console.sign_in: {why}"))?;
        let clients = entries.iter().map(|entry| entry.client.clone()).collect();
        Ok(Some(Self::new(clients, redirect_uri, tls)))
    }

    pub fn new(clients: Vec<Client>, redirect_uri: String, tls: Tls) -> Self {
        let issuers = clients.into_iter().map(|client| Issuer { client, provider: Mutex::default() });
        let (turns, seal) = (FairTurns::new(TURNS), ProcessSeal::generate());
        let (addresses, spent) = (Addresses::new(FINISHING), Spent::default());
        Self { issuers: issuers.collect(), redirect_uri, tls, turns, addresses, spent, seal }
    }

    /// Returns the names of the issuers, in the order of the configuration.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.issuers.iter().map(|issuer| issuer.client.name.as_str())
    }

    /// Begins a sign-in at an issuer, which leads to the path `to` of the console.
    pub async fn begin(&self, issuer: &str, to: &str, now: SystemTime) -> Result<Begun, Failed> {
        let issuer = self.find(issuer)?;
        let provider = issuer.provider(&self.tls).await?;
        let pending = Pending::new(&issuer.client.name, to, seconds(now));
        let cookie = pending.cookie(&self.seal).ok_or(Failed::Unknown)?;
        let mut url = provider.authorization.clone();
        let scopes = std::iter::once("openid").chain(issuer.client.scopes.iter().map(String::as_str));
        url.query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", &issuer.client.id)
            .append_pair("redirect_uri", &self.redirect_uri)
            .append_pair("scope", &scopes.collect::<Vec<_>>().join(" "))
            .append_pair("state", &pending.state)
            .append_pair("nonce", &pending.nonce)
            .append_pair("code_challenge", &pending.challenge())
            .append_pair("code_challenge_method", "S256");
        Ok(Begun { url: url.into(), cookie })
    }

    /// Finishes the sign-in of a cookie with the answer of its issuer, which a browser at an address brings.
    ///
    /// A cookie is spent with the first answer of its issuer, also if that is an error or brings no token.
    pub async fn finish(
        &self,
        cookie: &str,
        answered: Answered<'_>,
        from: IpAddr,
        now: SystemTime,
    ) -> Result<Finished, Failed> {
        let pending = Pending::read(&self.seal, cookie, answered.state, seconds(now)).ok_or(Failed::Stale)?;
        let issuer = self.find(&pending.issuer)?;
        let provider = issuer.provider(&self.tls).await?;
        // An answer of another issuer would have its code redeemed at this one (RFC 9207).
        let is_named = !answered.issuer.is_empty() || provider.names_itself;
        if is_named && answered.issuer != issuer.client.issuer {
            return Err(Failed::Stale);
        }
        let is_code = (1..=LONGEST_CODE).contains(&answered.code.len());
        if answered.error.is_empty() && !is_code {
            return Err(Failed::Stale);
        }
        let _turn = self.turn(from).await?;
        if !self.spent.spend(&pending.state, pending.until, seconds(now)) {
            return Err(Failed::Stale);
        }
        if !answered.error.is_empty() {
            return Err(refused(answered.error, answered.description));
        }
        let token = self.redeem(issuer, &provider, answered.code, &pending.verifier).await?;
        id_token::check(&token, &issuer.client.issuer, &issuer.client.id, &pending.nonce)?;
        Ok(Finished { token, to: pending.to })
    }

    fn find(&self, name: &str) -> Result<&Issuer, Failed> {
        self.issuers.iter().find(|issuer| issuer.client.name == name).ok_or(Failed::Unknown)
    }

    /// Waits for a turn, of which an address has a few.
    async fn turn(&self, from: IpAddr) -> Result<(Slot, FairTurn), Failed> {
        let slot = self.addresses.enter(from, std::time::Instant::now()).ok_or(Failed::Busy)?;
        // It is not given up for another one.
        slot.prove();
        match timeout(WAIT, self.turns.wait(&network(from).to_string())).await {
            Ok(Some(turn)) => Ok((slot, turn)),
            _ => Err(Failed::Busy),
        }
    }

    /// Exchanges a code for an ID token (RFC 6749, 4.1.3).
    async fn redeem(
        &self,
        issuer: &Issuer,
        provider: &Provider,
        code: &str,
        verifier: &str,
    ) -> Result<String, Failed> {
        let (form, headers) = self.form(issuer, provider, code, verifier);
        let answer = post_form(&self.tls, &provider.token, &headers, &form, LARGEST, PATIENCE).await;
        let (status, body) = answer.map_err(|why| Failed::Issuer(format!("its token endpoint: {why}")))?;
        if status != 200 {
            return Err(match serde_json::from_slice(&body) {
                Ok(Denied { error, error_description }) if !error.is_empty() => {
                    refused(&error, &error_description)
                }
                _ => Failed::Issuer(format!("its token endpoint: answered {status}")),
            });
        }
        let granted = serde_json::from_slice::<Granted>(&body).ok().and_then(|granted| granted.id_token);
        granted.ok_or_else(|| Failed::Issuer("its token endpoint sent no ID token".to_owned()))
    }

    /// Returns the request for a token: its form, and a header with the client's secret if the issuer takes one.
    fn form(
        &self,
        issuer: &Issuer,
        provider: &Provider,
        code: &str,
        verifier: &str,
    ) -> (String, Vec<(&'static str, String)>) {
        let Client { id, secret, .. } = &issuer.client;
        let mut form = Serializer::new(String::new());
        form.append_pair("grant_type", "authorization_code")
            .append_pair("code", code)
            .append_pair("redirect_uri", &self.redirect_uri)
            .append_pair("code_verifier", verifier);
        let mut headers = Vec::new();
        match secret {
            Some(secret) if !provider.secret_in_form => headers.push(("authorization", basic(id, secret))),
            Some(secret) => {
                form.append_pair("client_id", id).append_pair("client_secret", secret);
            }
            None => {
                form.append_pair("client_id", id);
            }
        }
        (form.finish(), headers)
    }
}

impl Issuer {
    /// Returns the endpoints. One request fetches them at a time, and the others wait for it.
    async fn provider(&self, tls: &Tls) -> Result<Arc<Provider>, Failed> {
        let mut known = self.provider.lock().await;
        let fresh = known
            .as_ref()
            .filter(|(since, found)| since.elapsed() < if found.is_ok() { KNOWN } else { FAILED });
        let found = if let Some((_, found)) = fresh {
            found.clone()
        } else {
            let found = Provider::fetch(tls, &self.client.issuer).await.map(Arc::new);
            *known = Some((Instant::now(), found.clone()));
            found
        };
        found.map_err(Failed::Issuer)
    }
}

/// Returns the value of a header with the client's secret (RFC 6749, 2.3.1).
fn basic(id: &str, secret: &str) -> String {
    let encoded = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
    format!("Basic {}", STANDARD.encode(format!("{}:{}", encoded(id), encoded(secret))))
}

fn seconds(now: SystemTime) -> u64 {
    now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
#[path = "flow_tests.rs"]
mod tests;
