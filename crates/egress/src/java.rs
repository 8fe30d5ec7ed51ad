//! Writes certificates in the form that Java reads as its `cacerts`: PKCS #12 (RFC 7292), neither encrypted nor signed.
//!
//! There is no secret in it, and Java opens it with any password and with none. Java takes a certificate as trusted if its bag has an
//! attribute for that.

/// Types of DER.
const OCTET_STRING: u8 = 0x04;
const OBJECT_IDENTIFIER: u8 = 0x06;
const BMP_STRING: u8 = 0x1e;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
/// The first element of a choice.
const FIRST: u8 = 0xa0;

/// Version 3 of the form.
const VERSION: [u8; 3] = [0x02, 0x01, 0x03];
/// Contents of identifiers: PKCS #7 data, 1.2.840.113549.1.7.1.
const DATA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x07, 0x01];
/// A bag with a certificate, 1.2.840.113549.1.12.10.1.3.
const CERTIFICATE_BAG: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x0c, 0x0a, 0x01, 0x03];
/// A certificate of X.509, 1.2.840.113549.1.9.22.1.
const X509: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x16, 0x01];
/// The name of an entry, 1.2.840.113549.1.9.20.
const FRIENDLY_NAME: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x14];
/// The use that a trusted certificate has in Java, 2.16.840.1.113894.746875.1.1.
const TRUSTED_USE: &[u8] = &[0x60, 0x86, 0x48, 0x01, 0x86, 0xf9, 0x66, 0xad, 0xca, 0x7b, 0x01, 0x01];
/// Any use, 2.5.29.37.0.
const ANY_USE: &[u8] = &[0x55, 0x1d, 0x25, 0x00];

/// Returns a store with these certificates, which are in DER.
pub(crate) fn store<'c>(certificates: impl IntoIterator<Item = &'c [u8]>) -> Vec<u8> {
    let bags: Vec<u8> =
        certificates.into_iter().zip(0_u32..).flat_map(|(der, number)| bag(der, number)).collect();
    let contents = element(SEQUENCE, &[&data(&element(SEQUENCE, &[&bags]))]);
    element(SEQUENCE, &[&VERSION, &data(&contents)])
}

/// Returns the entry of a certificate.
fn bag(der: &[u8], number: u32) -> Vec<u8> {
    let certificate =
        element(SEQUENCE, &[&identifier(X509), &element(FIRST, &[&element(OCTET_STRING, &[der])])]);
    let name: Vec<u8> = format!("authority-{number}").encode_utf16().flat_map(u16::to_be_bytes).collect();
    // In the order of their bytes, as DER has sets.
    let mut attributes = [
        attribute(FRIENDLY_NAME, &element(BMP_STRING, &[&name])),
        attribute(TRUSTED_USE, &identifier(ANY_USE)),
    ];
    attributes.sort();
    let [first, second] = &attributes;
    let value = element(FIRST, &[&certificate]);
    element(SEQUENCE, &[&identifier(CERTIFICATE_BAG), &value, &element(SET, &[first, second])])
}

fn attribute(kind: &[u8], value: &[u8]) -> Vec<u8> {
    element(SEQUENCE, &[&identifier(kind), &element(SET, &[value])])
}

/// Returns plain content.
fn data(content: &[u8]) -> Vec<u8> {
    element(SEQUENCE, &[&identifier(DATA), &element(FIRST, &[&element(OCTET_STRING, &[content])])])
}

fn identifier(content: &[u8]) -> Vec<u8> {
    element(OBJECT_IDENTIFIER, &[content])
}

/// Returns an element of DER with these parts.
fn element(kind: u8, parts: &[&[u8]]) -> Vec<u8> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let mut bytes = vec![kind];
    if let Ok(short @ ..0x80) = u8::try_from(length) {
        bytes.push(short);
    } else {
        let long = length.to_be_bytes();
        let long: Vec<u8> = long.into_iter().skip_while(|byte| *byte == 0).collect();
        // As many bytes as an address has at most.
        bytes.push(0x80 | u8::try_from(long.len()).unwrap_or_default());
        bytes.extend(long);
    }
    for part in parts {
        bytes.extend_from_slice(part);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use x509_cert::der::asn1::{AnyRef, ObjectIdentifier};
    use x509_cert::der::{Decode as _, Encode as _, Reader as _, SliceReader, Tag, Tagged as _};

    use super::*;

    /// Returns the elements within an element.
    fn parts(der: &[u8]) -> Vec<AnyRef<'_>> {
        let mut reader = SliceReader::new(AnyRef::from_der(der).unwrap().value()).unwrap();
        let mut parts = Vec::new();
        while !reader.is_finished() {
            parts.push(reader.decode().unwrap());
        }
        parts
    }

    fn name(part: &AnyRef<'_>) -> String {
        part.decode_as::<ObjectIdentifier>().unwrap().to_string()
    }

    /// Returns the content of plain data.
    fn content(der: &[u8]) -> Vec<u8> {
        let both = parts(der);
        assert_eq!(name(&both[0]), "1.2.840.113549.1.7.1");
        AnyRef::from_der(both[1].value()).unwrap().value().to_vec()
    }

    #[test]
    fn a_store_has_each_certificate_as_a_trusted_one() {
        let certificates: [Vec<u8>; 4] = [vec![1; 3], vec![2; 127], vec![3; 128], vec![4; 70_000]];
        let store = store(certificates.iter().map(Vec::as_slice));
        let top = parts(&store);
        assert_eq!((top.len(), top[0].value()), (2, &[3][..]), "nothing is signed");
        let safe = content(&top[1].to_der().unwrap());
        let safe = parts(&safe);
        assert_eq!(safe.len(), 1);
        let bags = content(&safe[0].to_der().unwrap());
        let bags = parts(&bags);
        assert_eq!(bags.len(), certificates.len());
        for (number, (bag, certificate)) in bags.iter().zip(&certificates).enumerate() {
            let bag = bag.to_der().unwrap();
            let bag = parts(&bag);
            assert_eq!(name(&bag[0]), "1.2.840.113549.1.12.10.1.3");
            let value = parts(bag[1].value());
            assert_eq!(name(&value[0]), "1.2.840.113549.1.9.22.1");
            assert!(AnyRef::from_der(value[1].value()).unwrap().value() == certificate);
            let set = bag[2].to_der().unwrap();
            let mut names = Vec::new();
            for attribute in parts(&set) {
                let attribute = attribute.to_der().unwrap();
                let attribute = parts(&attribute);
                let inner = attribute[1].value();
                let value = AnyRef::from_der(inner).unwrap();
                if value.tag() == Tag::ObjectIdentifier {
                    assert_eq!(name(&value), "2.5.29.37.0");
                } else {
                    let units: Vec<u16> =
                        value.value().chunks(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect();
                    assert_eq!(String::from_utf16(&units).unwrap(), format!("authority-{number}"));
                }
                names.push(name(&attribute[0]));
            }
            names.sort();
            assert_eq!(names, ["1.2.840.113549.1.9.20", "2.16.840.1.113894.746875.1.1"]);
        }
    }
}
