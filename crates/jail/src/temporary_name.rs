//! The names of temporary files: a prefix that no agent can write, and random digits.

use rustix::rand::{GetRandomFlags, getrandom};

use crate::error::OpenErrorKind;
use crate::name::EntryName;

/// Prefix of every temporary name. Agents cannot write names with this prefix.
pub(crate) const TEMPORARY_PREFIX: &str = ".cofferdam-tmp-";
const RANDOM_BYTES: usize = 16;

pub(crate) fn random() -> Result<String, OpenErrorKind> {
    let mut random = [0_u8; RANDOM_BYTES];
    // Up to 256 bytes are returned at once if the pool is ready, which is long before a container runs.
    if getrandom(&mut random, GetRandomFlags::empty())? != RANDOM_BYTES {
        return Err(OpenErrorKind::TooManyRetries);
    }
    Ok(format!("{:032x}", u128::from_ne_bytes(random)))
}

/// Returns true if these are the digits of a temporary name.
pub(crate) fn is_random(digits: &str) -> bool {
    digits.len() == 2 * RANDOM_BYTES && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

pub(crate) fn name_of(digits: &str) -> Option<EntryName> {
    EntryName::new(format!("{TEMPORARY_PREFIX}{digits}").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_random_and_recognised() {
        let (a, b) = (random().unwrap(), random().unwrap());
        assert!(is_random(&a) && is_random(&b));
        assert_ne!(a, b);
        assert!(name_of(&a).unwrap().as_bytes().starts_with(TEMPORARY_PREFIX.as_bytes()));
        assert!(
            !is_random("notes") && !is_random(&a[1..]) && !is_random(&a.to_uppercase().replace('0', "G"))
        );
    }
}
