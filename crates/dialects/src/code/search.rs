//! `grep` and `glob`.

use operations::Operation;
use schemars::JsonSchema;
use serde::Deserialize;
use wire::v1;

use crate::failure::ParseFailure;
use crate::limits::{Limits, saturated};
use crate::tool::{NoOperation, ToolArguments};

/// Lines or files that a search returns if the call sets no limit.
const HITS: u32 = 100;

/// Kinds of files by ripgrep's names, and their file name endings.
const TYPES: [(&str, &str); 24] = [
    ("c", "{c,h}"),
    ("cpp", "{cpp,cc,cxx,hpp,hh,hxx,h}"),
    ("cs", "cs"),
    ("css", "{css,scss}"),
    ("go", "go"),
    ("html", "{html,htm}"),
    ("java", "java"),
    ("js", "{js,jsx,mjs,cjs}"),
    ("json", "json"),
    ("kotlin", "{kt,kts}"),
    ("lua", "lua"),
    ("md", "{md,markdown}"),
    ("php", "php"),
    ("proto", "proto"),
    ("py", "{py,pyi}"),
    ("ruby", "{rb,gemspec}"),
    ("rust", "rs"),
    ("scala", "scala"),
    ("sh", "{sh,bash}"),
    ("sql", "sql"),
    ("swift", "swift"),
    ("toml", "toml"),
    ("ts", "{ts,tsx,mts,cts}"),
    ("yaml", "{yaml,yml}"),
];

/// Search files for a regular expression (Rust syntax: no look-around; one line at a time). Skips .git, node_modules,
/// hidden and ignored files, and binary ones. Lines are cut at 400 characters.
/// Example: {"pattern": "fn \\w+_test", "path": "src", "output_mode": "content", "-n": true}
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Grep {
    /// Regular expression.
    pattern: String,
    /// Directory or file. Default: the workspace.
    path: Option<String>,
    /// Only files whose path below path is like this, such as *.rs or src/**/*.{ts,tsx}. Default: all.
    glob: Option<String>,
    /// Only files of this kind, such as py, rust or ts. Not with glob. Default: all.
    #[serde(rename = "type")]
    kind: Option<String>,
    /// content gives the matching lines, files_with_matches the paths of their files. Default: files_with_matches.
    output_mode: Option<OutputMode>,
    /// Ignore case. Default false.
    #[serde(rename = "-i")]
    ignore_case: Option<bool>,
    /// With content: line numbers, which are always there.
    #[serde(rename = "-n")]
    _numbers: Option<bool>,
    /// With content: lines after each match, at most 20. Default 0.
    #[serde(rename = "-A")]
    after: Option<u64>,
    /// With content: lines before each match, at most 20. Default 0.
    #[serde(rename = "-B")]
    before: Option<u64>,
    /// With content: lines before and after each match, at most 20. Default 0.
    #[serde(rename = "-C")]
    around: Option<u64>,
    /// Most matches, or files, from 1 to 1,000. Default 100.
    head_limit: Option<u64>,
}

#[derive(Deserialize, JsonSchema, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum OutputMode {
    Content,
    FilesWithMatches,
}

impl ToolArguments for Grep {
    fn operation(self, _limits: &Limits) -> Result<Operation, NoOperation> {
        let one_per_file = self.output_mode != Some(OutputMode::Content);
        let context = |lines: Option<u64>| {
            // Where only paths are requested, there are no lines of context.
            let lines = lines.or(self.around).filter(|_| !one_per_file);
            Some(lines.map_or(0, saturated))
        };
        let glob = match (self.glob, &self.kind) {
            (Some(_), Some(_)) => return Err(ParseFailure::argument("type", "does not go with glob").into()),
            (Some(glob), None) => glob,
            (None, Some(kind)) => of_type(kind)?,
            (None, None) => String::new(),
        };
        Ok(Operation::try_from(v1::GrepRequest {
            path: self.path.unwrap_or_default(),
            pattern: self.pattern,
            regex: true,
            case_insensitive: self.ignore_case.unwrap_or_default(),
            before: context(self.before),
            after: context(self.after),
            glob,
            max_matches: Some(self.head_limit.map_or(HITS, saturated)),
            one_per_file,
            ..Default::default()
        })?)
    }
}

fn of_type(kind: &str) -> Result<String, ParseFailure> {
    let known = TYPES.into_iter().find(|(name, _)| *name == kind);
    known.map(|(_, ends)| format!("*.{ends}")).ok_or_else(|| {
        let names: Vec<&str> = TYPES.into_iter().map(|(name, _)| name).collect();
        ParseFailure::argument("type", format!("must be one of {}; or use glob", names.join(", ")))
    })
}

/// Find files by name: *, **, ?, {a,b} and [a-z] stand for what they do in a shell. Skips hidden and ignored files. At most
/// 200 paths come back. Example: {"pattern": "src/**/*.rs"}
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Glob {
    /// Pattern, relative to path.
    pattern: String,
    /// Directory to search in. Default: the workspace.
    path: Option<String>,
}

impl ToolArguments for Glob {
    fn operation(self, _limits: &Limits) -> Result<Operation, NoOperation> {
        let path = self.path.unwrap_or_default();
        Ok(Operation::try_from(v1::GlobRequest { path, pattern: self.pattern, ..Default::default() })?)
    }
}
