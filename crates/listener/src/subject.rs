//! Reads the subject of a client certificate, after its chain has been verified.

use std::time::SystemTime;

use tokio_rustls::rustls::pki_types::CertificateDer;
use x509_cert::Certificate;
use x509_cert::der::Decode as _;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

use super::revoked::Shown;

/// Maximum length of a name, bytes.
const MAX_NAME: usize = 256;

/// Holder of a certificate, and the end of its validity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    /// URI among the alternative names, or the common name if there is no URI.
    pub name: String,
    pub not_after: SystemTime,
    pub(super) shown: Shown,
}

impl Subject {
    /// Returns the subject; `None` if the certificate names no holder, or more than one.
    pub(super) fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let shown = Shown::of(certificate);
        let certificate = Certificate::from_der(certificate).ok()?;
        let certificate = certificate.tbs_certificate();
        let alternatives = certificate.get_extension::<SubjectAltName>().ok()?;
        let names = alternatives.map(|(_, names)| names.0).unwrap_or_default();
        let mut uris = names.iter().filter_map(|name| match name {
            GeneralName::UniformResourceIdentifier(uri) => Some(uri.as_str().to_owned()),
            _ => None,
        });
        let name = match uris.next() {
            Some(uri) => uris.next().is_none().then_some(uri),
            None => certificate.subject().common_name().ok()?.map(|name| name.value().into_owned()),
        };
        let not_after = certificate.validity().not_after.to_system_time();
        let is_plain = |name: &String| {
            !name.is_empty() && name.len() <= MAX_NAME && name.chars().all(|c| c.is_ascii_graphic())
        };
        Some(Self { name: name.filter(is_plain)?, not_after, shown })
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use rcgen::{CertificateParams, DnType, Issuer, KeyPair, SanType};

    use super::Subject;

    fn subject(name: Option<&str>, uris: &[&str]) -> Option<Subject> {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        if let Some(name) = name {
            params.distinguished_name.push(DnType::CommonName, name);
        }
        params.subject_alt_names = uris.iter().map(|uri| SanType::URI((*uri).try_into().unwrap())).collect();
        params.not_after = rcgen::date_time_ymd(2040, 1, 1);
        let key = KeyPair::generate().unwrap();
        let issuer = Issuer::new(CertificateParams::default(), KeyPair::generate().unwrap());
        Subject::of(params.signed_by(&key, &issuer).unwrap().der())
    }

    #[test]
    fn a_certificate_names_one_by_its_uri_or_else_by_its_common_name() {
        let name = |name, uris: &[&str]| subject(name, uris).map(|subject| subject.name);
        assert_eq!(name(Some("ci"), &[]).as_deref(), Some("ci"));
        let uri = "spiffe://example.org/ci";
        assert_eq!(name(Some("ci"), &[uri]).as_deref(), Some(uri));
        assert_eq!(name(None, &[uri]).as_deref(), Some(uri));
        let until = subject(Some("ci"), &[]).unwrap().not_after;
        assert_eq!(until, SystemTime::UNIX_EPOCH + Duration::from_secs(2_208_988_800));
    }

    #[test]
    fn ambiguous_or_empty_subjects_are_refused() {
        let long = "a".repeat(257);
        for (name, uris) in [
            (None, &[][..]),
            (Some(""), &[]),
            (Some("two words"), &[]),
            (Some("line\nbreak"), &[]),
            (Some("bj\u{f6}rn"), &[]),
            (Some(long.as_str()), &[]),
            (Some("ci"), &["spiffe://example.org/a", "spiffe://example.org/b"]),
        ] {
            assert_eq!(subject(name, uris), None, "{name:?} {uris:?}");
        }
        assert_eq!(Subject::of(&b"\x30\x03\x02\x01\x01".to_vec().into()), None);
    }
}
