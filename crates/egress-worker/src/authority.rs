//! The certificate authority of one process, and the certificates that it shows to programs of the run.
//!
//! Its keys are in this process's memory and nowhere else. A further process of the same run has another authority. The keys are ECDSA
//! with P-256, which every TLS library supports.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, SerialNumber,
};
use thiserror::Error;
use tokio_rustls::rustls;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::crypto::ring::sign::any_ecdsa_type;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::sign::{CertifiedKey, SigningKey};

const DAY: Duration = Duration::from_secs(24 * 3600);
/// Time before now at which certificates begin, because clocks differ.
const BACKDATED: Duration = DAY;
/// Time for which the authority is valid.
const AUTHORITY_LASTS: Duration = Duration::from_secs(365 * 24 * 3600);
/// Time for which a certificate of a name is valid.
const LEAF_LASTS: Duration = Duration::from_secs(30 * 24 * 3600);
/// Time for which a certificate of a name is shown, before another one is made.
const LEAF_IS_SHOWN: Duration = Duration::from_secs(15 * 24 * 3600);
/// Most certificates that are kept. The oldest is removed for a further one.
const MOST_LEAVES: usize = 256;
const SERIAL_BYTES: usize = 16;
/// Names in the subjects. The name of a server may be too long for one.
const AUTHORITY_NAME: &str = "Cofferdam run authority";
const LEAF_NAME: &str = "Cofferdam run";

/// The reason why there is no certificate.
#[derive(Debug, Error)]
pub(crate) enum AuthorityError {
    #[error("no certificate could be made")]
    Certificate(#[from] rcgen::Error),
    #[error("the key of a certificate could not be used")]
    Key(#[from] rustls::Error),
    #[error("the operating system has no random bytes")]
    Random,
    #[error("the authority of this process is no longer valid; a new run has a new one")]
    Expired,
}

/// A certificate authority.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    /// Time since 1970 at which its certificate ends.
    ends: Duration,
    /// The key of all certificates that it signs, as the signer and as the verifier have it.
    leaf_key: KeyPair,
    leaf_signer: Arc<dyn SigningKey>,
    leaves: Mutex<VecDeque<Leaf>>,
}

/// A certificate that is kept.
struct Leaf {
    name: String,
    /// Time since 1970 at which it was made.
    made: Duration,
    key: Arc<CertifiedKey>,
}

impl Authority {
    /// Makes the keys and the certificate of a new authority.
    pub(crate) fn new() -> Result<Self, AuthorityError> {
        Self::new_at(now())
    }

    fn new_at(now: Duration) -> Result<Self, AuthorityError> {
        let ends = now + AUTHORITY_LASTS;
        let mut params = params(AUTHORITY_NAME, &[], now, ends)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?.into();
        let leaf_key = KeyPair::generate()?;
        let leaf_signer =
            any_ecdsa_type(&PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(leaf_key.serialize_der())))?;
        Ok(Self {
            issuer: Issuer::new(params, key),
            certificate,
            ends,
            leaf_key,
            leaf_signer,
            leaves: Mutex::default(),
        })
    }

    /// Returns the authority's certificate, in DER.
    pub(crate) fn certificate_der(&self) -> &[u8] {
        &self.certificate
    }

    /// Returns the certificate of a server with its key. `name` is a DNS name in canonical form, or an address.
    pub(crate) fn leaf(&self, name: &str) -> Result<Arc<CertifiedKey>, AuthorityError> {
        self.leaf_at(name, now())
    }

    fn leaf_at(&self, name: &str, now: Duration) -> Result<Arc<CertifiedKey>, AuthorityError> {
        let mut leaves = self.leaves.lock();
        let is_shown = |leaf: &Leaf| now < leaf.made + LEAF_IS_SHOWN && now < self.ends;
        if let Some(leaf) = leaves.iter().find(|leaf| leaf.name == name && is_shown(leaf)) {
            return Ok(Arc::clone(&leaf.key));
        }
        let key = self.sign(name, now)?;
        leaves.retain(|leaf| leaf.name != name);
        if leaves.len() >= MOST_LEAVES {
            leaves.pop_front();
        }
        leaves.push_back(Leaf { name: name.to_owned(), made: now, key: Arc::clone(&key) });
        Ok(key)
    }

    fn sign(&self, name: &str, now: Duration) -> Result<Arc<CertifiedKey>, AuthorityError> {
        if now >= self.ends {
            return Err(AuthorityError::Expired);
        }
        let mut params = params(LEAF_NAME, &[name], now, self.ends.min(now + LEAF_LASTS))?;
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let certificate = params.signed_by(&self.leaf_key, &self.issuer)?.into();
        Ok(Arc::new(CertifiedKey::new(vec![certificate], Arc::clone(&self.leaf_signer))))
    }
}

/// Returns the parameters that all certificates have.
fn params(
    subject: &str,
    names: &[&str],
    now: Duration,
    ends: Duration,
) -> Result<CertificateParams, AuthorityError> {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, subject);
    params.serial_number = Some(serial()?);
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = epoch + now.saturating_sub(BACKDATED);
    params.not_after = epoch + ends;
    Ok(params)
}

/// Returns a random serial number, because some clients refuse two certificates with one number.
fn serial() -> Result<SerialNumber, AuthorityError> {
    let mut bytes = [0; SERIAL_BYTES];
    default_provider().secure_random.fill(&mut bytes).map_err(|_| AuthorityError::Random)?;
    // A positive number of this length.
    bytes[0] = (bytes[0] & 0x7f) | 0x40;
    Ok(SerialNumber::from_slice(&bytes))
}

/// Returns the time since 1970, in seconds. It has an end, so that no sum overflows.
fn now() -> Duration {
    /// The beginning of the year 3000.
    const LAST: u64 = 32_503_680_000;
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Duration::from_secs(since.as_secs().min(LAST))
}

#[cfg(test)]
#[expect(clippy::unchecked_time_subtraction, reason = "of constants")]
mod tests {
    use tokio_rustls::rustls::RootCertStore;
    use tokio_rustls::rustls::client::WebPkiServerVerifier;
    use tokio_rustls::rustls::client::danger::ServerCertVerifier as _;
    use tokio_rustls::rustls::pki_types::{ServerName, UnixTime};

    use super::*;

    /// Verifies a certificate as a client does that trusts the authority alone.
    fn verify(
        authority: &Authority,
        leaf: &CertifiedKey,
        name: &str,
        at: Duration,
    ) -> Result<(), rustls::Error> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from(authority.certificate_der())).unwrap();
        let verifier =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::new(default_provider()));
        let name = ServerName::try_from(name).unwrap();
        let at = UnixTime::since_unix_epoch(at);
        let verifier = verifier.build().unwrap();
        verifier.verify_server_cert(&leaf.cert[0], &leaf.cert[1..], &name, &[], at).map(|_| ())
    }

    #[test]
    fn a_client_that_trusts_the_authority_accepts_its_certificates() {
        let authority = Authority::new().unwrap();
        let long = format!("{0}.{0}.{0}.example.org", "a".repeat(63));
        for name in ["api.example.org", "my_host.example.org", "127.0.0.1", "2001:db8::1", long.as_str()] {
            let leaf = authority.leaf(name).unwrap();
            leaf.keys_match().unwrap();
            verify(&authority, &leaf, name, now()).unwrap();
            verify(&authority, &leaf, "other.example.net", now()).unwrap_err();
            verify(&authority, &leaf, "127.0.0.2", now()).unwrap_err();
        }
    }

    #[test]
    fn a_client_of_another_process_refuses_its_certificates() {
        let (one, other) = (Authority::new().unwrap(), Authority::new().unwrap());
        assert_ne!(one.certificate_der(), other.certificate_der());
        let leaf = one.leaf("api.example.org").unwrap();
        verify(&other, &leaf, "api.example.org", now()).unwrap_err();
    }

    #[test]
    fn certificates_are_valid_from_yesterday_for_thirty_days() {
        let now = now();
        let authority = Authority::new_at(now).unwrap();
        let leaf = authority.leaf_at("api.example.org", now).unwrap();
        let is_valid = |at| verify(&authority, &leaf, "api.example.org", at).is_ok();
        let second = Duration::from_secs(1);
        assert!(is_valid(now - BACKDATED + second));
        assert!(!is_valid(now - BACKDATED - second));
        assert!(is_valid(now + LEAF_LASTS - second));
        assert!(!is_valid(now + LEAF_LASTS + second));
    }

    #[test]
    fn no_certificate_outlives_the_authority() {
        let now = now();
        let authority = Authority::new_at(now).unwrap();
        let last = now + AUTHORITY_LASTS - DAY;
        let leaf = authority.leaf_at("api.example.org", last).unwrap();
        verify(&authority, &leaf, "api.example.org", last).unwrap();
        verify(&authority, &leaf, "api.example.org", now + AUTHORITY_LASTS + DAY).unwrap_err();
        let late = authority.leaf_at("api.example.org", now + AUTHORITY_LASTS);
        assert!(matches!(late, Err(AuthorityError::Expired)));
    }

    #[test]
    fn a_certificate_is_made_once_until_half_of_its_time_is_over() {
        let now = now();
        let authority = Authority::new_at(now).unwrap();
        let first = authority.leaf_at("api.example.org", now).unwrap();
        let again = authority.leaf_at("api.example.org", now + LEAF_IS_SHOWN - DAY).unwrap();
        assert!(Arc::ptr_eq(&first, &again));
        let other = authority.leaf_at("other.example.org", now).unwrap();
        assert_ne!(first.cert, other.cert);
        let later = authority.leaf_at("api.example.org", now + LEAF_IS_SHOWN).unwrap();
        assert!(!Arc::ptr_eq(&first, &later));
        assert_ne!(first.cert, later.cert);
        assert_eq!(authority.leaves.lock().len(), 2);
    }

    #[test]
    fn the_oldest_certificate_leaves_when_there_are_too_many() {
        let authority = Authority::new().unwrap();
        let first = authority.leaf("0.example.org").unwrap();
        let second = authority.leaf("1.example.org").unwrap();
        for number in 2..=MOST_LEAVES {
            authority.leaf(&format!("{number}.example.org")).unwrap();
        }
        assert_eq!(authority.leaves.lock().len(), MOST_LEAVES);
        assert!(Arc::ptr_eq(&second, &authority.leaf("1.example.org").unwrap()));
        assert!(!Arc::ptr_eq(&first, &authority.leaf("0.example.org").unwrap()));
    }

    #[test]
    fn a_name_that_no_certificate_can_have_is_an_error() {
        let authority = Authority::new().unwrap();
        assert!(matches!(authority.leaf("b\u{fc}cher.example.org"), Err(AuthorityError::Certificate(_))));
        assert!(authority.leaves.lock().is_empty());
    }
}
