//! The pages of the book in `docs/src`, and their fenced blocks.

use std::path::{Path, PathBuf};

const INCLUDE: &str = "{{#include ";

/// A page of the book.
#[derive(Debug)]
pub struct Page {
    /// Its path beneath `docs/src`, such as `integrations/harbor.md`.
    pub name: String,
    pub text: String,
}

/// A fenced block of a page.
#[derive(Debug, PartialEq, Eq)]
pub struct Block {
    /// The line of the page on which the block begins, counted from 1.
    pub line: usize,
    /// The words after the opening fence.
    pub info: String,
    /// The lines of the page; mdBook's includes are not resolved.
    pub content: String,
}

/// Returns the directory of the pages.
pub fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/src")
}

/// Reads all pages, those of subdirectories too.
pub fn pages() -> Vec<Page> {
    let mut files = Vec::new();
    walk(&source(), &mut files);
    files.sort();
    let pages = files.into_iter().map(|file| {
        let name = file.strip_prefix(source()).unwrap().to_str().unwrap().to_owned();
        Page { name, text: std::fs::read_to_string(&file).unwrap() }
    });
    pages.collect()
}

fn walk(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            walk(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            files.push(path);
        }
    }
}

impl Page {
    /// Returns the directory to which the page's links and includes are relative.
    pub fn directory(&self) -> PathBuf {
        source().join(&self.name).parent().unwrap().to_owned()
    }

    /// Returns the fenced blocks in their order.
    pub fn blocks(&self) -> Vec<Block> {
        let mut blocks: Vec<Block> = Vec::new();
        let mut open: Option<usize> = None;
        for (line, number) in self.text.lines().zip(1..) {
            let trimmed = line.trim_start();
            let rest = trimmed.trim_start_matches('`');
            let ticks = trimmed.len() - rest.len();
            match open {
                None if ticks >= 3 => {
                    open = Some(ticks);
                    blocks.push(Block { line: number, info: rest.trim().to_owned(), content: String::new() });
                }
                Some(opened) if ticks >= opened && rest.trim().is_empty() => open = None,
                Some(_) => {
                    let block = blocks.last_mut().unwrap();
                    block.content.push_str(line);
                    block.content.push('\n');
                }
                None => {}
            }
        }
        assert!(open.is_none(), "docs/src/{}: the last block has no end", self.name);
        blocks
    }

    /// Returns the lines of a block as a reader sees them: with the files that it includes.
    pub fn shown(&self, block: &Block) -> String {
        let mut shown = String::new();
        for line in block.content.lines() {
            match included(line) {
                Some(file) => shown.push_str(&std::fs::read_to_string(self.directory().join(file)).unwrap()),
                None => shown.push_str(line),
            }
            shown.push('\n');
        }
        shown
    }
}

/// Returns the file that a line includes, if the line is an include of a whole file.
pub fn included(line: &str) -> Option<&str> {
    line.trim().strip_prefix(INCLUDE)?.strip_suffix("}}")
}
