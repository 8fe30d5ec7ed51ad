//! The README of the repository: one screen, whose links and pictures lead to files.

use super::root;

/// Most words of the README, as `wc -w` counts them.
const WORDS: usize = 900;
/// Most bytes of the recording, which a visitor's browser loads with the page.
const RECORDING: u64 = 150 * 1024;

/// Returns the paths to which the inline links and pictures of Markdown lead.
fn paths(text: &str) -> impl Iterator<Item = &str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
    targets
        .filter(|target| !target.contains("://"))
        .map(|target| target.split_once('#').map_or(target, |(path, _)| path))
}

#[test]
fn the_readme_is_short_and_its_links_lead_to_files() {
    let text = std::fs::read_to_string(root().join("README.md")).unwrap();
    let words = text.split_whitespace().count();
    assert!(words <= WORDS, "README.md has {words} words, and {WORDS} are allowed: move text into docs/src");
    let missing: Vec<_> = paths(&text).filter(|path| !root().join(path).exists()).collect();
    assert_eq!(missing, Vec::<&str>::new());
    for command in ["./deploy/quickstart.sh", "./tests/run.sh"] {
        assert!(text.contains(command), "README.md does not name {command}");
    }
}

#[test]
fn the_recording_is_small_and_names_no_directory_of_its_host() {
    let file = root().join("docs/src/images/demo.svg");
    assert!(file.metadata().unwrap().len() <= RECORDING);
    let text = std::fs::read_to_string(file).unwrap();
    for directory in ["/home/", "/root/", "/tmp/", "/var/", "/work/", "/usr/"] {
        assert!(!text.contains(directory), "{directory}");
    }
}

#[test]
fn paths_are_found_without_anchors_and_addresses() {
    let text = "[a](b.md#c), ![d](e.svg), [f](https://example.org/g)";
    assert_eq!(paths(text).collect::<Vec<_>>(), ["b.md", "e.svg"]);
}
