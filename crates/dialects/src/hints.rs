//! Tests every hint in every dialect: it uses the caller's own names, or is left out.

use operations::{Hint, Named, Reason, ToolFailure};

use super::arguments::parameters;
use super::{Dialect, Made, Tool, find, names, render_canonical};

const FAILED: &str = "it went wrong";

fn every_tool() -> Vec<(&'static dyn Dialect, &'static Tool)> {
    let dialects = names().into_iter().map(|name| find(name).unwrap());
    dialects.flat_map(|dialect| dialect.tools().iter().map(move |tool| (dialect, tool))).collect()
}

fn failure(hint: Hint) -> ToolFailure {
    ToolFailure::new(Reason::PreconditionFailed, FAILED).hint(hint)
}

/// Removes punctuation and case, so that `replaceAll` and `replace_all` are equal.
fn plain(name: &str) -> String {
    name.replace('_', "").to_lowercase()
}

#[test]
fn a_hint_uses_the_callers_dialect_or_is_left_out() {
    for (dialect, tool) in every_tool() {
        for hint in Hint::ALL {
            let text = dialect.render(&Made::new(tool.name, None), &Err(failure(hint)));
            let own: Vec<&str> = match hint.named() {
                Named::Argument(argument) => {
                    let known = parameters(&tool.schema).map(|parameter| parameter.name);
                    known.filter(|name| plain(name) == plain(argument)).collect()
                }
                Named::Operation(operation) => {
                    let others = dialect.tools().iter().filter(|other| other.name != tool.name);
                    let others = others.filter(|other| other.operations.contains(&operation));
                    others.map(|other| other.name).take(1).collect()
                }
            };
            let what = format!("{} {} {hint:?}: {text}", dialect.name(), tool.name);
            // The one hint for which dialects have a separate text.
            let lists = dialect.name() == "editor" || (dialect.name(), tool.name) == ("code", "read");
            let slash = lists && hint == Hint::List;
            match own.first().filter(|_| dialect.name() != "editor") {
                Some(name) => assert!(text.contains(&format!("{FAILED}; {}", hint.say(name))), "{what}"),
                None if slash => assert!(text.contains("put a slash at the end of its path"), "{what}"),
                None => assert!(text.contains(FAILED) && !text.contains("; "), "{what}"),
            }
        }
    }
}

#[test]
fn hints_use_the_names_of_each_dialect() {
    let said = |dialect: &str, tool: &str, hint: Hint| find(dialect).unwrap().hint(tool, hint);
    let all = |name: &str| Some(format!("set {name} to replace all of them"));
    for (dialect, tool, expected) in [
        ("forge", "edit", all("replaceAll")),
        ("forge", "forge:edit", all("replaceAll")),
        ("code", "edit", all("replace_all")),
        ("forge", "write", None),
        ("native", "edit_file", None),
        ("editor", "str_replace", None),
        ("editor", "str_replace_based_edit_tool", None),
    ] {
        assert_eq!(said(dialect, tool, Hint::ReplaceAll), expected, "{dialect} {tool}");
    }
    for (dialect, tool, list) in [
        ("fs", "fs.read", Some("fs.list")),
        ("fs", "fs_read", Some("fs.list")),
        ("native", "read_file", Some("list_files")),
        ("gateway", "read_file", Some("list_directory")),
        ("forge", "read", None),
    ] {
        let expected = list.map(|name| format!("list it with {name}"));
        assert_eq!(said(dialect, tool, Hint::List), expected, "{dialect} {tool}");
    }
}

#[test]
fn without_a_dialect_a_hint_has_the_names_of_the_api() {
    for hint in Hint::ALL {
        let text = render_canonical(&Err(failure(hint)));
        assert!(text.contains(&format!("{FAILED}; {}", hint.canonical())), "{text}");
        assert_eq!(Hint::parse(hint.as_str()), Some(hint));
    }
}
