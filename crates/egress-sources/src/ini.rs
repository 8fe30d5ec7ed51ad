//! Lines of the form `key = value` in sections, as several tools write them.

/// One value, with the section that it is in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) section: String,
    pub(super) key: String,
    pub(super) value: String,
}

/// Reads all values. A line that begins with a space continues the value before it, with a space between the two.
///
/// Lines that have no such form are skipped: a tool may know more than this.
pub(super) fn entries(text: &str, separators: &[char]) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    let mut section = String::new();
    for line in text.lines() {
        let words = line.trim();
        if words.is_empty() || words.starts_with(['#', ';']) {
            continue;
        }
        if let Some(name) = words.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            name.trim().clone_into(&mut section);
        } else if line.starts_with([' ', '\t'])
            && let Some(last) = entries.last_mut()
            && last.section == section
        {
            last.value.push(' ');
            last.value.push_str(words);
        } else if let Some((key, value)) = words.split_once(separators) {
            let (key, value) = (key.trim().to_owned(), value.trim().to_owned());
            entries.push(Entry { section: section.clone(), key, value });
        }
    }
    entries
}
