//! Pairs of commits, an old and a new one, and the answers if the first is an ancestor of the second.

/// Most pairs of commits for one task.
pub const MOST_PAIRS: usize = 256;

/// Digits of an id.
const DIGITS: usize = 40;

/// Writes pairs as one argument.
pub(crate) fn pairs_to_text(pairs: &[(String, String)]) -> String {
    let pairs: Vec<String> = pairs.iter().map(|(old, new)| format!("{old}:{new}")).collect();
    pairs.join(",")
}

/// Reads the argument. Returns `None` if there is no pair, too many, or one that is not of two ids.
pub(crate) fn pairs(text: &str) -> Option<Vec<(String, String)>> {
    let is_id = |id: &str| id.len() == DIGITS && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    let pair = |text: &str| {
        let (old, new) = text.split_once(':')?;
        (is_id(old) && is_id(new)).then(|| (old.to_owned(), new.to_owned()))
    };
    let pairs: Option<Vec<_>> = text.split(',').map(pair).collect();
    pairs.filter(|pairs| pairs.len() <= MOST_PAIRS)
}

/// Writes the answers, a byte for each pair.
pub fn answers_to_bytes(answers: &[Option<bool>]) -> Vec<u8> {
    let byte = |answer: Option<bool>| match answer {
        Some(true) => b'y',
        Some(false) => b'n',
        None => b'?',
    };
    answers.iter().copied().map(byte).collect()
}

/// Reads the answers. All other bytes are unknown answers.
pub(crate) fn answers(bytes: &[u8]) -> Vec<Option<bool>> {
    let answer = |byte: u8| match byte {
        b'y' => Some(true),
        b'n' => Some(false),
        _ => None,
    };
    bytes.iter().copied().map(answer).collect()
}

#[cfg(test)]
mod tests {
    use rustix::fs::{Gid, Uid};

    use super::*;
    use crate::args::{Args, JailMount, Task};

    #[test]
    fn pairs_of_commits_are_asked_about_in_one_directory() {
        for task in [Task::Ancestry as fn(_) -> _, Task::PreviewPush] {
            pairs_are_read_as_they_were_written(task);
        }
    }

    fn pairs_are_read_as_they_were_written(task: fn(Vec<(String, String)>) -> Task) {
        let pair = || ("1a".repeat(20), "2b".repeat(20));
        let args = |pairs: Vec<(String, String)>| Args {
            uid: Uid::from_raw(1),
            gid: Gid::from_raw(1),
            accepts: None,
            jail_mounts: vec![JailMount::Source],
            task: task(pairs),
        };
        for count in [1, MOST_PAIRS] {
            let good = args(vec![pair(); count]);
            assert_eq!(Args::parse(good.to_command_line()), Ok(good));
        }
        let short = (pair().0, "2b".to_owned());
        for bad in [vec![], vec![short], vec![("-".repeat(40), pair().1)], vec![pair(); MOST_PAIRS + 1]] {
            assert!(Args::parse(args(bad.clone()).to_command_line()).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn answers_are_read_as_they_were_written() {
        let known = [Some(true), Some(false), None];
        assert_eq!(answers(&answers_to_bytes(&known)), known);
        assert_eq!(answers(b"Y\0"), [None, None]);
    }
}
