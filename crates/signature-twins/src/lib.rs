#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

/// Types of DER.
const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const SEQUENCE: u8 = 0x30;

/// Order of the curve P-256 (SP 800-186, section 3.2.1.3).
const P256: [u8; 32] = [
    0xff, 0xff, 0xff, 0xff, 0x00, 0x00, 0x00, 0x00, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xbc,
    0xe6, 0xfa, 0xad, 0xa7, 0x17, 0x9e, 0x84, 0xf3, 0xb9, 0xca, 0xc2, 0xfc, 0x63, 0x25, 0x51,
];
/// Order of the curve P-384 (SP 800-186, section 3.2.1.4).
const P384: [u8; 48] = [
    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xc7, 0x63, 0x4d, 0x81, 0xf4, 0x37, 0x2d, 0xdf, 0x58, 0x1a,
    0x0d, 0xb2, 0x48, 0xb0, 0xa7, 0x7a, 0xec, 0xec, 0x19, 0x6a, 0xcc, 0xc5, 0x29, 0x73,
];

/// Returns the certificates, in DER, that could be valid in the place of this one. Without a signature of ECDSA there are none.
///
/// The curve is that of another certificate, the signer's, so there is one for each curve that the signature fits. Others than P-256 and
/// P-384 are verified nowhere.
pub fn twins(certificate: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let orders: [&'static [u8]; 2] = [&P256, &P384];
    orders.into_iter().filter_map(move |order| twin(certificate, order))
}

fn twin(certificate: &[u8], order: &[u8]) -> Option<Vec<u8>> {
    let content = whole(SEQUENCE, certificate)?;
    let (_, after_content) = read(SEQUENCE, content)?;
    let (_, signature) = read(SEQUENCE, after_content)?;
    let signed = content.get(..content.len().checked_sub(signature.len())?)?;
    // No bit of the last byte is unused.
    let pair = whole(SEQUENCE, whole(BIT_STRING, signature)?.strip_prefix(b"\0")?)?;
    let (r, s) = read(INTEGER, pair)?;
    let s = difference(order, whole(INTEGER, s)?)?;
    let pair = element(SEQUENCE, &[&element(INTEGER, &[r]), &element(INTEGER, &[&s])]);
    Some(element(SEQUENCE, &[signed, &element(BIT_STRING, &[b"\0", &pair])]))
}

/// Returns the content of the integer `order - number`. `None` if it is not positive.
fn difference(order: &[u8], number: &[u8]) -> Option<Vec<u8>> {
    let number = without_zeros(number);
    let mut digits = vec![0_u8; order.len().checked_sub(number.len())?];
    digits.extend_from_slice(number);
    let mut has_borrowed = false;
    for (digit, of_order) in digits.iter_mut().zip(order).rev() {
        let (less, first) = of_order.overflowing_sub(*digit);
        let (less, second) = less.overflowing_sub(u8::from(has_borrowed));
        (*digit, has_borrowed) = (less, first || second);
    }
    let digits = without_zeros(&digits);
    // The first bit of an integer is its sign.
    let sign: &[u8] = if *digits.first()? < 0x80 { b"" } else { b"\0" };
    (!has_borrowed).then(|| [sign, digits].concat())
}

fn without_zeros(digits: &[u8]) -> &[u8] {
    let zeros = digits.iter().take_while(|digit| **digit == 0).count();
    digits.get(zeros..).unwrap_or_default()
}

/// Returns the content of the one element that there is.
fn whole(kind: u8, der: &[u8]) -> Option<&[u8]> {
    read(kind, der).filter(|(_, rest)| rest.is_empty()).map(|(content, _)| content)
}

/// Reads an element of a type. Returns its content, and the bytes after it.
fn read(kind: u8, der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (first, rest) = der.split_first()?;
    let (length, rest) = rest.split_first()?;
    let (length, rest) = if *length < 0x80 {
        (usize::from(*length), rest)
    } else {
        let (digits, rest) = rest.split_at_checked(usize::from(*length & 0x7f))?;
        let add = |length: usize, digit: &u8| length.checked_mul(256)?.checked_add(usize::from(*digit));
        (digits.iter().try_fold(0, add)?, rest)
    };
    rest.split_at_checked(length).filter(|_| *first == kind)
}

/// Returns an element with these parts.
fn element(kind: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let mut bytes = vec![kind];
    match u8::try_from(content.len()) {
        Ok(short) if short < 0x80 => bytes.push(short),
        _ => {
            let length = content.len().to_be_bytes();
            let length = without_zeros(&length);
            // As many bytes as an address has at most.
            bytes.push(0x80 | u8::try_from(length.len()).unwrap_or_default());
            bytes.extend_from_slice(length);
        }
    }
    bytes.extend(content);
    bytes
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519};

    use super::*;

    #[test]
    fn the_twin_of_a_twin_is_the_certificate() {
        let orders: [&[u8]; 2] = [&P256, &P384];
        for (algorithm, order) in [&PKCS_ECDSA_P256_SHA256, &PKCS_ECDSA_P384_SHA384].into_iter().zip(orders) {
            // Some have integers with a sign, and some do not.
            for _ in 0..16 {
                let key = KeyPair::generate_for(algorithm).unwrap();
                let certificate = CertificateParams::default().self_signed(&key).unwrap();
                let other = twin(certificate.der(), order).unwrap();
                assert_ne!(other, certificate.der().to_vec());
                assert_eq!(twin(&other, order).unwrap(), certificate.der().to_vec());
                assert!(twins(certificate.der()).any(|twin| twin == other));
            }
        }
    }

    #[test]
    fn other_signatures_and_other_bytes_have_no_twin() {
        let key = KeyPair::generate_for(&PKCS_ED25519).unwrap();
        let certificate = CertificateParams::default().self_signed(&key).unwrap();
        let whole = certificate.der().to_vec();
        for bytes in [
            &whole[..],
            &whole[1..],
            b"",
            b"\x30",
            b"\x30\x80",
            b"\x30\x84\xff\xff\xff\xff",
            b"\x30\x03\x02\x01\x01",
        ] {
            assert_eq!(twins(bytes).count(), 0, "{bytes:?}");
        }
    }

    #[test]
    fn differences_are_positive_integers_of_der() {
        let order = [0x01, 0x00, 0x80];
        for (number, expected) in [
            (&[0x01][..], Some(vec![0x01, 0x00, 0x7f])),
            (&[0x00, 0x80], Some(vec![0x01, 0x00, 0x00])),
            (&[0x01, 0x00, 0x00], Some(vec![0x00, 0x80])),
            (&[0x01, 0x00, 0x7f], Some(vec![0x01])),
            (&[0x01, 0x00, 0x80], None),
            (&[0x01, 0x00, 0x81], None),
            (&[0x01, 0x00, 0x00, 0x00], None),
        ] {
            assert_eq!(difference(&order, number), expected, "{number:?}");
        }
    }
}
