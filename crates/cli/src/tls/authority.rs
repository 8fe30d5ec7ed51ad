//! The certificate authority and the certificates that it signs. The keys are ECDSA with P-256, which every TLS library supports.

use jiff::ToSpan as _;
use jiff::civil::Date;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose,
};

use crate::failure::Failure;

/// Number of days for which an authority is valid. It is also the longest validity of a certificate.
const AUTHORITY_DAYS: u32 = 3_650;

/// A certificate and its key, in PEM.
pub(super) struct Pair {
    pub(super) certificate: String,
    pub(super) key: String,
}

/// Purpose of a certificate.
pub(super) enum For<'a> {
    /// The daemon with these names and addresses.
    Server(&'a [String]),
    Client(&'a str),
}

/// A certificate authority.
pub(super) struct Authority(Issuer<'static, KeyPair>);

impl Authority {
    /// Makes a new authority. Returns it with its certificate and key to store.
    pub(super) fn make() -> Result<(Self, Pair), Failure> {
        let key = KeyPair::generate().map_err(failed)?;
        let mut params = params()?;
        last(&mut params, AUTHORITY_DAYS)?;
        let certificate = params.self_signed(&key).map_err(failed)?.pem();
        let pair = Pair { certificate, key: key.serialize_pem() };
        Ok((Self(Issuer::new(params, key)), pair))
    }

    /// Returns the authority that was made with this key.
    pub(super) fn of(key: &str) -> Result<Self, Failure> {
        let key = KeyPair::from_pem(key).map_err(failed)?;
        Ok(Self(Issuer::new(params()?, key)))
    }

    /// Makes a new key and signs a certificate for it.
    pub(super) fn sign(&self, what: &For<'_>, days: u32) -> Result<Pair, Failure> {
        let (names, name, purpose) = match what {
            For::Server(hosts) => {
                let first = hosts.first().map(String::as_str).unwrap_or_default();
                (hosts.to_vec(), first, ExtendedKeyUsagePurpose::ServerAuth)
            }
            For::Client(name) => (Vec::new(), *name, ExtendedKeyUsagePurpose::ClientAuth),
        };
        let mut params = CertificateParams::new(names).map_err(failed)?;
        params.distinguished_name = named(name);
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![purpose];
        last(&mut params, days)?;
        let key = KeyPair::generate().map_err(failed)?;
        let certificate = params.signed_by(&key, &self.0).map_err(failed)?.pem();
        Ok(Pair { certificate, key: key.serialize_pem() })
    }
}

/// Returns the parameters of every authority. They are constant, so that the key suffices to sign.
fn params() -> Result<CertificateParams, Failure> {
    let mut params = CertificateParams::new([]).map_err(failed)?;
    params.distinguished_name = named("Cofferdam");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

fn named(name: &str) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    names.push(DnType::CommonName, name);
    names
}

/// Sets the validity of a certificate. It begins yesterday, because clocks differ.
fn last(params: &mut CertificateParams, days: u32) -> Result<(), Failure> {
    let today = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).date();
    let at = |days: i64| today.checked_add(days.days()).map_err(|error| Failure::usage(error.to_string()));
    let moment = |date: Date| {
        rcgen::date_time_ymd(date.year().into(), date.month().unsigned_abs(), date.day().unsigned_abs())
    };
    (params.not_before, params.not_after) = (moment(at(-1)?), moment(at(days.into())?));
    Ok(())
}

#[allow(clippy::needless_pass_by_value)] // `map_err` passes it by value
fn failed(error: rcgen::Error) -> Failure {
    Failure::failed(format!("the certificate cannot be made: {error}"))
}
