//! Names of users and groups, from the files of accounts.

use std::fs;

/// Largest file of accounts that is read, bytes.
const LONGEST: u64 = 4 * 1024 * 1024;

/// Returns the name of a user, if the accounts have one.
pub(crate) fn user_name(uid: u32) -> Option<String> {
    Some(name("/etc/passwd", uid)).filter(|name| *name != uid.to_string())
}

/// Returns the name that a file of accounts has for an id, or the id.
pub(crate) fn name(file: &str, id: u32) -> String {
    let is_long = fs::metadata(file).is_ok_and(|meta| meta.len() > LONGEST);
    let text = if is_long { String::new() } else { fs::read_to_string(file).unwrap_or_default() };
    let id = id.to_string();
    let found = text.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == id).then(|| name.to_owned())
    });
    found.unwrap_or(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_without_a_name_is_shown_as_it_is() {
        assert_eq!((name("/etc/passwd", 0).as_str(), name("/nonexistent", 7).as_str()), ("root", "7"));
        assert_eq!((user_name(0).as_deref(), user_name(u32::MAX - 7)), (Some("root"), None));
    }
}
