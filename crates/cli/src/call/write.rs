//! `coffer call write`.

use std::path::{Path, PathBuf};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use clap::Args;
use wire::v1::operation::Kind as Operation;
use wire::v1::{ContentEncoding, WriteRequest, WriteResult};

use super::{CallOptions, Target, make, stdin};
use crate::client::Context;
use crate::failure::{Ended, Failure};
use crate::output::Output;
use crate::quantity::bytes;

/// Create or overwrite one file atomically.
#[derive(Args, Debug)]
#[command(before_help = "Example: date | coffer call write 3f2a9c01 stamp.txt -")]
pub(crate) struct Write {
    #[command(flatten)]
    target: Target,
    /// The file. Missing directories are created.
    path: String,
    #[command(flatten)]
    source: Source,
    /// Only if the file does not exist.
    #[arg(long, conflicts_with = "if_match")]
    create_only: bool,
    /// Only if the file has this SHA-256.
    #[arg(long, value_name = "SHA256")]
    if_match: Option<String>,
    #[command(flatten)]
    options: CallOptions,
}

/// Source of the content.
#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
struct Source {
    /// Take the content from standard input.
    #[arg(value_name = "-", value_parser = ["-"])]
    stdin: Option<String>,
    /// The content as text.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    content: Option<String>,
    /// Take the content from this file; `-` for standard input.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

impl Write {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let (text, encoding) = self.source.content()?;
        let operation = WriteRequest {
            path: self.path,
            content: text,
            if_match_sha256: self.if_match.unwrap_or_default(),
            create_only: self.create_only,
            encoding: encoding.into(),
            ..Default::default()
        };
        make(context, &self.target, self.options, Operation::Write(operation)).await
    }
}

impl Source {
    fn content(self) -> Result<(String, ContentEncoding), Failure> {
        if let Some(content) = self.content {
            return Ok((content, ContentEncoding::Unspecified));
        }
        Ok(encode(stdin::read(self.file.as_deref().unwrap_or(Path::new("-")))?))
    }
}

/// Encodes UTF-8 as text and other content as base64.
fn encode(content: Vec<u8>) -> (String, ContentEncoding) {
    match String::from_utf8(content) {
        Ok(text) => (text, ContentEncoding::Unspecified),
        Err(error) => (BASE64_STANDARD.encode(error.as_bytes()), ContentEncoding::Base64),
    }
}

pub(crate) fn render(result: &WriteResult, data: &mut Output) {
    let what = if result.created {
        "created "
    } else if result.sha256_before == result.sha256_after {
        "unchanged "
    } else {
        "overwrote "
    };
    data.own(what).word(&result.path).own(": ").word(&bytes(result.bytes_written));
    data.own(", sha256 ").word(&result.sha256_after).own("\n");
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::output::Look;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        write: Write,
    }

    fn parse(line: &str) -> Result<Write, clap::Error> {
        Line::try_parse_from(line.split(' ')).map(|line| line.write)
    }

    #[test]
    fn one_source_of_content() {
        assert!(parse("write r a.txt").is_err());
        assert!(parse("write r a.txt - --content x").is_err());
        assert!(parse("write r a.txt other").is_err());
        assert!(parse("write r a.txt --content x --create-only --if-match y").is_err());
        assert!(parse("write r a.txt -").unwrap().source.stdin.is_some());
        let write = parse("write r a.txt --content -x").unwrap();
        assert_eq!(write.source.content().unwrap(), ("-x".into(), ContentEncoding::Unspecified));
    }

    #[test]
    fn a_file_is_sent_unchanged() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), [0xff, 0]).unwrap();
        let source = Source { stdin: None, content: None, file: Some(file.path().into()) };
        assert_eq!(source.content().unwrap(), ("/wA=".into(), ContentEncoding::Base64));
        assert_eq!(encode("ü".into()), ("ü".into(), ContentEncoding::Unspecified));
    }

    #[test]
    fn a_write_reports_its_result() {
        let mut result = WriteResult {
            path: "@project/a".into(),
            bytes_written: 3,
            sha256_before: String::new(),
            sha256_after: "b".into(),
            created: true,
            entries: 0,
        };
        let text = |result: &WriteResult| {
            let mut page = Output::new(Look::PIPE);
            render(result, &mut page);
            page.as_str().to_owned()
        };
        assert_eq!(text(&result), "created @project/a: 3 B, sha256 b\n");
        result.created = false;
        assert_eq!(text(&result), "overwrote @project/a: 3 B, sha256 b\n");
        result.sha256_before = "b".into();
        assert_eq!(text(&result), "unchanged @project/a: 3 B, sha256 b\n");
    }
}
