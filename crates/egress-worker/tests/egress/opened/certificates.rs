//! Certificates of servers that must get no request.

use std::io::Write as _;

use rcgen::ExtendedKeyUsagePurpose;
use ring::digest::{SHA256, digest};
use wire::worker::v1::connection_ended::Cause;

use super::*;

fn params() -> CertificateParams {
    CertificateParams::new(vec![NAME.to_owned()]).unwrap()
}

#[test]
fn certificates_of_no_authority_of_another_time_or_purpose_get_no_request() {
    let ca = Ca::new();
    let own = KeyPair::generate().unwrap();
    let own_certificate = params().self_signed(&own).unwrap();
    let mut later = params();
    later.not_before = rcgen::date_time_ymd(2900, 1, 1);
    later.not_after = rcgen::date_time_ymd(3000, 1, 1);
    let mut of_clients = params();
    of_clients.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    // A certificate that is not an authority's signs another one.
    let (leaf, key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let chained = params().signed_by(&key, &Issuer::new(params(), leaf)).unwrap();
    for (config, words) in [
        (
            serving(own_certificate.der(), &own, &["http/1.1"]),
            "no authority that this machine trusts has signed it",
        ),
        (serving(chained.der(), &key, &["http/1.1"]), "no authority that this machine trusts has signed it"),
        (ca.signed(&later, &["http/1.1"]), "it is not valid yet"),
        (ca.signed(&of_clients, &["http/1.1"]), "it is malformed, or not made for servers"),
    ] {
        let address = tls_server(config, |stream| assert_eq!(read_head(stream), None));
        let mut egress = Egress::start(granting(opened(&ca, address), 443));
        let mut stream = connect(&mut egress);
        write!(stream, "GET / HTTP/1.1\r\nHost: {NAME}\r\n\r\n").unwrap();
        let (head, body) = response(&mut stream);
        assert!(head.starts_with("HTTP/1.1 502 "), "{head}");
        assert_eq!(body, format!("The certificate of {NAME} is not valid: {words}.\n"));
        drop(stream);
        assert_eq!(egress.cause(), Cause::Unverified);
        assert!(requests(&egress).is_empty());
    }
}

#[test]
fn a_certificate_that_the_operator_has_revoked_gets_no_request() {
    let ca = Ca::new();
    let key = KeyPair::generate().unwrap();
    let certificate = params().signed_by(&key, &ca.issuer).unwrap();
    // As valid as the certificate itself.
    let twin = CertificateDer::from(signature_twins::twins(certificate.der()).next().unwrap());
    let fingerprint = |der: &[u8]| digest(&SHA256, der).as_ref().to_vec();
    for (shown, revoked, is_refused) in [
        (certificate.der(), fingerprint(certificate.der()), true),
        (certificate.der(), fingerprint(&ca.der), true),
        (certificate.der(), fingerprint(b"another"), false),
        (&twin, fingerprint(certificate.der()), true),
        (&twin, fingerprint(b"another"), false),
    ] {
        // A chain with the authority, which is what such a list names when it is no root.
        let chain = vec![shown.clone(), CertificateDer::from(ca.der.clone())];
        let address = tls_server(serving_chain(chain, &key, &["http/1.1"]), mirror);
        let mut script = granting(opened(&ca, address), 443);
        script.start.revoked = vec![revoked];
        let mut egress = Egress::start(script);
        let mut stream = connect(&mut egress);
        write!(stream, "GET / HTTP/1.1\r\nHost: {NAME}\r\n\r\n").unwrap();
        let (head, body) = response(&mut stream);
        assert_eq!(head.starts_with("HTTP/1.1 502 "), is_refused, "{head}");
        drop(stream);
        if is_refused {
            assert_eq!(body, format!("The certificate of {NAME} is not valid: it is revoked.\n"));
            assert_eq!(egress.cause(), Cause::Unverified);
        } else {
            assert_eq!(egress.cause(), Cause::Closed);
        }
        assert_eq!(requests(&egress).is_empty(), is_refused);
    }
}
