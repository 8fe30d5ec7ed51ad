//! Ends of the certificates that the configuration names, and warnings before they come.

use std::fmt;
use std::time::{Duration, SystemTime};

use tokio_rustls::rustls::pki_types::CertificateDer;
use wire::Timestamp;
use x509_cert::Certificate;
use x509_cert::der::Decode as _;

const DAY: Duration = Duration::from_secs(86_400);
/// Time before the end of a certificate in which the daemon warns.
const SOON: Duration = Duration::from_secs(30 * 86_400);

/// Certificate of a file, and the end of its validity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateEnd {
    /// Key below `listen.tcp.tls` that names the file.
    pub key: &'static str,
    /// Place of the certificate in the file, from 1 on.
    pub place: usize,
    pub not_after: SystemTime,
}

/// Time that a certificate has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remaining {
    Enough,
    /// Whole days until the end, which is near.
    Days(u64),
    Expired,
}

impl CertificateEnd {
    /// Returns the ends of the certificates of a file. One that cannot be read has none: TLS refuses it.
    pub(crate) fn all(key: &'static str, certificates: &[CertificateDer<'_>]) -> Vec<Self> {
        let ends = certificates.iter().enumerate().filter_map(|(index, certificate)| {
            let certificate = Certificate::from_der(certificate).ok()?;
            let not_after = certificate.tbs_certificate().validity().not_after.to_system_time();
            Some(Self { key, place: index + 1, not_after })
        });
        ends.collect()
    }

    pub fn remaining(&self, now: SystemTime) -> Remaining {
        match self.not_after.duration_since(now) {
            Err(_) => Remaining::Expired,
            Ok(left) if left < SOON => Remaining::Days(left.as_secs() / DAY.as_secs()),
            Ok(_) => Remaining::Enough,
        }
    }

    /// Returns what happens without a new certificate, and the step that helps.
    pub fn remedy(&self) -> &'static str {
        if self.key == "client_ca" {
            "the daemon refuses every certificate of an authority that has expired: add a new authority to the file, and give the clients \
             certificates of it (see the book, \"Renew\")"
        } else {
            "clients refuse a daemon whose certificate has expired: renew it with `coffer tls rotate`, and copy the directory `server` to \
             this host (see the book, \"Renew\")"
        }
    }

    /// Logs that the end is near or over.
    pub(crate) fn warn(&self, now: SystemTime) {
        match self.remaining(now) {
            Remaining::Enough => {}
            Remaining::Days(_) => tracing::warn!("{}; {}", self.told(now), self.remedy()),
            Remaining::Expired => tracing::error!("{}; {}", self.told(now), self.remedy()),
        }
    }

    /// Describes the certificate and the time that it has left.
    pub fn told(&self, now: SystemTime) -> String {
        match self.remaining(now) {
            Remaining::Enough => format!("{self} is valid until {}", self.end()),
            Remaining::Days(0) => format!("{self} expires within a day, at {}", self.end()),
            Remaining::Days(1) => format!("{self} expires in 1 day, at {}", self.end()),
            Remaining::Days(days) => format!("{self} expires in {days} days, at {}", self.end()),
            Remaining::Expired => format!("{self} has expired at {}", self.end()),
        }
    }

    fn end(&self) -> Timestamp {
        Timestamp { nanos: 0, ..Timestamp::from(self.not_after) }
    }
}

impl fmt::Display for CertificateEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "listen.tcp.tls.{}: certificate {} of the file", self.key, self.place)
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    /// Returns a certificate that ends at the beginning of the year 2040.
    fn certificate() -> CertificateDer<'static> {
        let mut params = CertificateParams::new(vec!["localhost".into()]).unwrap();
        params.not_after = rcgen::date_time_ymd(2040, 1, 1);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    #[test]
    fn the_daemon_warns_in_the_last_thirty_days_of_a_certificate() {
        let broken = CertificateDer::from(b"\x30\x03\x02\x01\x01".to_vec());
        let ends = CertificateEnd::all("client_ca", &[broken, certificate()]);
        let [end] = &ends[..] else { panic!("{ends:?}") };
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(2_208_988_800);
        assert_eq!(*end, CertificateEnd { key: "client_ca", place: 2, not_after: at });
        let before = |seconds: u64| at - Duration::from_secs(seconds);
        let start = "listen.tcp.tls.client_ca: certificate 2 of the file";
        let date = "2040-01-01T00:00:00Z";
        for (now, remaining, told) in [
            (before(31 * 86_400), Remaining::Enough, format!("{start} is valid until {date}")),
            (before(30 * 86_400), Remaining::Enough, format!("{start} is valid until {date}")),
            (before(30 * 86_400 - 1), Remaining::Days(29), format!("{start} expires in 29 days, at {date}")),
            (before(86_400), Remaining::Days(1), format!("{start} expires in 1 day, at {date}")),
            (before(0), Remaining::Days(0), format!("{start} expires within a day, at {date}")),
            (at + DAY, Remaining::Expired, format!("{start} has expired at {date}")),
        ] {
            assert_eq!((end.remaining(now), end.told(now)), (remaining, told));
        }
        assert!(end.remedy().contains("authority"));
        let own = CertificateEnd { key: "certificate", ..end.clone() };
        assert!(own.remedy().contains("coffer tls rotate"));
    }
}
