//! Encryption of a notice for one browser (RFC 8291, with the coding `aes128gcm` of RFC 8188).

use hkdf::Hkdf;
use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::agreement::{ECDH_P256, EphemeralPrivateKey, UnparsedPublicKey, agree_ephemeral};
use ring::rand::{SecureRandom as _, SystemRandom};
use sha2::Sha256;

/// Length of the secret of a subscription, bytes.
pub(super) const AUTH: usize = 16;
const SALT: usize = 16;
/// Length of an uncompressed point of P-256.
const POINT: usize = 65;
/// Size of a record in the header. There is one, and it is shorter.
const RECORD: u32 = 4_096;
/// Length to which each text is padded, so that a push service learns nothing of it.
pub(super) const PADDED: usize = 512;
/// Octet after the last text of a message.
const LAST: u8 = 2;

/// Error of an encryption. It does not say more, as nothing of it depends on a secret of the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the notice cannot be encrypted for this browser")]
pub(super) struct Failed;

/// Returns true for an uncompressed point of the curve.
pub(super) fn is_point(point: &[u8]) -> bool {
    point.len() == POINT && agree(point).is_ok()
}

/// Makes a key for one message, and returns its public half and what both halves agree on.
fn agree(theirs: &[u8]) -> Result<(Vec<u8>, Vec<u8>), Failed> {
    let mine = EphemeralPrivateKey::generate(&ECDH_P256, &SystemRandom::new()).map_err(|_| Failed)?;
    let public = mine.compute_public_key().map_err(|_| Failed)?;
    let theirs = UnparsedPublicKey::new(&ECDH_P256, theirs);
    let agreed = agree_ephemeral(mine, &theirs, <[u8]>::to_vec).map_err(|_| Failed)?;
    Ok((public.as_ref().to_vec(), agreed))
}

/// Encrypts a text of at most [`PADDED`] bytes for the browser with this point and this secret.
pub(super) fn encrypt(text: &[u8], point: &[u8], auth: &[u8]) -> Result<Vec<u8>, Failed> {
    let mut salt = [0; SALT];
    SystemRandom::new().fill(&mut salt).map_err(|_| Failed)?;
    let (public, agreed) = agree(point)?;
    let mut padded = text.to_vec();
    padded.push(LAST);
    if text.len() > PADDED {
        return Err(Failed);
    }
    padded.resize(PADDED + 1, 0);
    seal(padded, &agreed, (point, &public), auth, &salt)
}

/// Seals a padded text with the keys that follow from the agreed value.
fn seal(
    mut text: Vec<u8>,
    agreed: &[u8],
    (theirs, mine): (&[u8], &[u8]),
    auth: &[u8],
    salt: &[u8; SALT],
) -> Result<Vec<u8>, Failed> {
    let info = [b"WebPush: info\0", theirs, mine].concat();
    let mut material = [0; 32];
    derive(auth, agreed, &info, &mut material)?;
    let (mut key, mut nonce) = ([0; 16], [0; 12]);
    derive(salt, &material, b"Content-Encoding: aes128gcm\0", &mut key)?;
    derive(salt, &material, b"Content-Encoding: nonce\0", &mut nonce)?;
    let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &key).map_err(|_| Failed)?);
    // The key is of one message, so the nonce is used once.
    key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::empty(), &mut text)
        .map_err(|_| Failed)?;
    let length = u8::try_from(mine.len()).map_err(|_| Failed)?;
    Ok([&salt[..], &RECORD.to_be_bytes(), &[length], mine, &text].concat())
}

fn derive(salt: &[u8], material: &[u8], info: &[u8], out: &mut [u8]) -> Result<(), Failed> {
    Hkdf::<Sha256>::new(Some(salt), material).expand(info, out).map_err(|_| Failed)
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;

    use super::{LAST, PADDED, encrypt, is_point, seal};
    use crate::push::tests::Browser;

    fn bytes(text: &str) -> Vec<u8> {
        URL_SAFE_NO_PAD.decode(text).unwrap()
    }

    /// RFC 8291, appendix A, from the agreed value on: `ring` takes no private key from outside.
    #[test]
    fn the_example_of_the_specification_is_met() {
        let theirs =
            bytes("BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4");
        let mine =
            bytes("BP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A8");
        let text = [&b"When I grow up, I want to be a watermelon"[..], &[LAST]].concat();
        let sealed = seal(
            text,
            &bytes("kyrL1jIIOHEzg3sM2ZWRHDRB62YACZhhSlknJ672kSs"),
            (&theirs, &mine),
            &bytes("BTBZMqHH6r4Tts7J_aSIgg"),
            &bytes("DGv6ra1nlYgDCS1FRnbzlw").try_into().unwrap(),
        );
        let expected = "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN";
        assert_eq!(URL_SAFE_NO_PAD.encode(sealed.unwrap()), expected);
    }

    #[test]
    fn a_browser_reads_what_was_encrypted_for_it_and_the_length_says_nothing() {
        let (one, other) = (Browser::new(), Browser::new());
        let sealed = encrypt(b"https://console.example.org/", &one.point, &one.auth).unwrap();
        let longer = encrypt(&[b'x'; PADDED], &other.point, &other.auth).unwrap();
        assert_eq!(sealed.len(), longer.len());
        assert_eq!(one.open(&sealed).unwrap(), b"https://console.example.org/");
        assert_eq!(other.open(&longer).unwrap(), [b'x'; PADDED]);
        let (for_one, another) = (Browser::new(), Browser::new());
        let sealed = encrypt(b"x", &for_one.point, &for_one.auth).unwrap();
        assert!(another.open(&sealed).is_none());
        assert!(encrypt(&[0; PADDED + 1], &for_one.point, &for_one.auth).is_err());
    }

    #[test]
    fn a_point_beside_the_curve_is_none() {
        let mut point = Browser::new().point;
        assert!(is_point(&point));
        point[64] ^= 1;
        assert!(!is_point(&point));
        for bad in [&[][..], &[4; 65], &[0; 65], &point[..33]] {
            assert!(!is_point(bad));
        }
    }
}
