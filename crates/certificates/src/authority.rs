//! The certificate authority and the certificates that it signs. The keys are ECDSA with P-256, which every TLS library supports.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose,
};
use x509_cert::Certificate;
use x509_cert::der::Decode as _;

use crate::CertificateError;

/// Number of days for which an authority is valid.
const AUTHORITY_DAYS: u32 = 3_650;

/// A certificate and its key, in PEM.
pub(crate) struct Pair {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// Purpose of a certificate.
pub(crate) enum For<'a> {
    /// The daemon with these names and addresses.
    Server(&'a [String]),
    Client(&'a str),
}

/// A certificate authority.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Day at whose beginning its certificate ends.
    until: Date,
}

impl Authority {
    /// Makes the certificate and the key of a new authority.
    pub(crate) fn make() -> Result<Pair, CertificateError> {
        let key = KeyPair::generate()?;
        let mut params = params()?;
        last(&mut params, day(AUTHORITY_DAYS)?);
        let certificate = params.self_signed(&key)?.pem();
        Ok(Pair { certificate, key: key.serialize_pem() })
    }

    /// Returns the authority with this certificate and key.
    pub(crate) fn of(pair: &Pair) -> Result<Self, CertificateError> {
        let key = KeyPair::from_pem(&pair.key)?;
        let until = last_day(&pair.certificate).ok_or(CertificateError::Unreadable)?;
        Ok(Self { issuer: Issuer::new(params()?, key), until })
    }

    /// Makes a new key and signs a certificate for it, which ends no later than the authority.
    pub(crate) fn sign(&self, what: &For<'_>, days: u32) -> Result<Pair, CertificateError> {
        let (names, name, purpose) = match what {
            For::Server(hosts) => {
                let first = hosts.first().map(String::as_str).unwrap_or_default();
                (hosts.to_vec(), first, ExtendedKeyUsagePurpose::ServerAuth)
            }
            For::Client(name) => (Vec::new(), *name, ExtendedKeyUsagePurpose::ClientAuth),
        };
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name = named(name);
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![purpose];
        if self.until <= day(0)? {
            return Err(CertificateError::Expired(self.until));
        }
        last(&mut params, day(days)?.min(self.until));
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?.pem();
        Ok(Pair { certificate, key: key.serialize_pem() })
    }
}

/// Returns the parameters of every authority. They are constant, so that the key suffices to sign.
fn params() -> Result<CertificateParams, CertificateError> {
    let mut params = CertificateParams::new([])?;
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
fn last(params: &mut CertificateParams, until: Date) {
    let moment = |date: Date| {
        rcgen::date_time_ymd(date.year().into(), date.month().unsigned_abs(), date.day().unsigned_abs())
    };
    let today = Timestamp::now().to_zoned(TimeZone::UTC).date();
    (params.not_before, params.not_after) = (moment(today.saturating_sub(1.day())), moment(until));
}

/// Returns the day after this number of days.
fn day(days: u32) -> Result<Date, CertificateError> {
    let today = Timestamp::now().to_zoned(TimeZone::UTC).date();
    today.checked_add(i64::from(days).days()).map_err(CertificateError::Days)
}

/// Returns the day at whose beginning a certificate in PEM ends.
fn last_day(pem: &str) -> Option<Date> {
    let text: String = pem.lines().filter(|line| !line.starts_with("-----")).map(str::trim).collect();
    let certificate = Certificate::from_der(&STANDARD.decode(text).ok()?).ok()?;
    let seconds = certificate.tbs_certificate().validity().not_after.to_unix_duration().as_secs();
    let end = Timestamp::from_second(i64::try_from(seconds).ok()?).ok()?;
    Some(end.to_zoned(TimeZone::UTC).date())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_certificate_outlives_its_authority() {
        let made = Authority::make().unwrap();
        let authority = Authority::of(&made).unwrap();
        assert_eq!(authority.until, day(AUTHORITY_DAYS).unwrap());
        let later =
            |days| Authority { issuer: Authority::of(&made).unwrap().issuer, until: day(days).unwrap() };
        for (what, left, asked, given) in [
            (For::Client("ci"), 30, 3_650, 30),
            (For::Server(&["localhost".to_owned()]), 30, 31, 30),
            (For::Client("ci"), 30, 7, 7),
        ] {
            let pair = later(left).sign(&what, asked).unwrap();
            assert_eq!(last_day(&pair.certificate), Some(day(given).unwrap()));
        }
        let Err(error) = later(0).sign(&For::Client("ci"), 1) else { panic!("signed") };
        assert!(matches!(error, CertificateError::Expired(_)), "{error}");
        assert!(error.hint().unwrap().contains("coffer tls init"));
    }
}
