//! A document with any front matter is refused in one line, or has the body that it had, and taking the same step again
//! changes nothing.
//!
//! Input: a step, a variable's name and value, and the document, with a byte 0xFF between them.

#![no_main]

use std::sync::LazyLock;

use file_ops::patch;
use fuzz::scene::{Scene, path, wide};
use fuzz::{is_one_line, text};
use libfuzzer_sys::fuzz_target;
use operations::{FrontMatter, OpResult, Patch, PatchChange, PatchResult, Reason, ToolFailure};

static SCENE: LazyLock<Scene> = LazyLock::new(|| Scene::new(&["f.md".to_owned()]));

fn update(step: &str, name: &str, value: &str) -> Result<PatchResult, ToolFailure> {
    let change = PatchChange::FrontMatter(FrontMatter {
        steps_completed_append: vec![step.to_owned()],
        variables_set: [(name.to_owned(), serde_json::Value::from(value))].into(),
        current_node_id: Some(value.to_owned()),
        ..FrontMatter::new(path("f.md"))
    });
    let change = Patch::new(change).expect("front matter is always a patch");
    match patch(&SCENE.jail, &change, &wide())? {
        OpResult::Patch(result) => Ok(result),
        other => panic!("{other:?}"),
    }
}

/// What is behind the closing line; all of it where there is no front matter.
fn body(document: &str) -> &str {
    let content = document.strip_prefix('\u{feff}').unwrap_or(document);
    let is_fence = |line: &str| {
        line.strip_prefix("---").is_some_and(|rest| rest.trim_matches([' ', '\t', '\r', '\n']).is_empty())
    };
    let mut lines = content.split_inclusive('\n');
    let Some(first) = lines.next().filter(|line| is_fence(line) && line.ends_with('\n')) else {
        return content;
    };
    let mut at = first.len();
    for line in lines {
        at += line.len();
        if is_fence(line) {
            return &content[at..];
        }
    }
    content
}

fuzz_target!(|data: &[u8]| {
    let mut parts = data.splitn(4, |byte| *byte == 0xff).map(text);
    let [step, name, value, document] = [(); 4].map(|()| parts.next().unwrap_or_default());
    SCENE.write("f.md", document.as_bytes());
    match update(&step, &name, &value) {
        Ok(result) => {
            assert!(result.notes.iter().all(|note| is_one_line(note)), "{:?}", result.notes);
            let after = SCENE.read("f.md");
            let after = str::from_utf8(&after).expect("still text");
            assert_eq!(body(after), body(&document), "{after}");
            update(&step, &name, &value).expect("still front matter");
            assert_eq!(SCENE.read("f.md"), after.as_bytes(), "once is enough");
        }
        Err(failure) => {
            let expected = matches!(failure.reason, Reason::InvalidFrontmatter | Reason::WriteLimit);
            assert!(expected && is_one_line(&failure.message), "{failure:?}");
            assert_eq!(SCENE.read("f.md"), document.as_bytes());
        }
    }
});
