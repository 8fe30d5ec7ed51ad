//! The remark after the findings of a search or a list.

use operations::beside_more;
use text::one_line;

/// Adds `more`, the note that there are more findings than shown, and the rest of the result's hint. Returns true if anything was added.
pub(crate) fn remark(text: &mut String, hint: &str, is_empty: bool, more: Option<String>) -> bool {
    let more = more.filter(|_| !is_empty || hint.is_empty());
    let rest = if more.is_some() { beside_more(hint) } else { hint };
    let rest = (!rest.is_empty()).then(|| format!("[{}]", one_line(rest)));
    let any = more.is_some() || rest.is_some();
    for said in more.into_iter().chain(rest) {
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(&said);
        text.push('\n');
    }
    any
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_findings_and_other_hints_appear_once_each() {
        let more = || Some("[stopped after 2 matches]".to_owned());
        for (findings, hint, more, expected) in [
            ("", "", None, ""),
            ("a\n", "", None, "a\n"),
            ("(none)", "3 left out", None, "(none)\n[3 left out]\n"),
            ("(none)", "the tree is large", more(), "(none)\n[the tree is large]\n"),
            ("a\n", "stopped: ask for more", more(), "a\n[stopped after 2 matches]\n"),
            (
                "a\n",
                "stopped: ask for more; 3 left out",
                more(),
                "a\n[stopped after 2 matches]\n[3 left out]\n",
            ),
            ("a\n", "3 left out", None, "a\n[3 left out]\n"),
        ] {
            let mut text = findings.to_owned();
            let any = remark(&mut text, hint, findings == "(none)", more);
            assert_eq!((text.as_str(), any), (expected, expected != findings), "{findings} {hint}");
        }
    }
}
