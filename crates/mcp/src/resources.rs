//! Serves files of the workspace as resources.
//!
//! Listing is a `glob` and reading a `read`. These are calls like any other: under permission and rate limits, and on record.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rmcp::ErrorData;
use rmcp::model::{
    CacheScope, ListResourceTemplatesResult, ListResourcesResult, ReadResourceResult, Resource,
    ResourceContents, ResourceTemplate,
};
use serde_json::json;
use wire::v1::call_response::Status as CallStatus;
use wire::v1::operation::Kind as Operation;
use wire::v1::result::Kind as Outcome;
use wire::v1::{CallResponse, ContentEncoding, GlobRequest, ReadRequest, ReadResult};

use crate::answer::error;
use crate::api::RunClient;
use crate::uri;

/// Resources in one page.
const PAGE: usize = 200;
/// Most files of all pages together. Further files are found with the run's tools.
const MOST: u32 = 5_000;
/// Most bytes of a cursor.
const LONGEST_CURSOR: usize = 8 * 1024;

/// Returns the template for the URI of any file in the workspace, whether it is listed or not.
pub(crate) fn templates() -> ListResourceTemplatesResult {
    let template = ResourceTemplate::new("workspace:///{+path}", "workspace file")
        .with_description("A file of the run's workspace, by its path from the workspace's root");
    ListResourceTemplatesResult::with_all_items(vec![template]).with_cache_scope(CacheScope::Private)
}

/// Lists the files that are neither hidden nor ignored, by name.
///
/// The cursor is the last path of the previous page: a change meanwhile neither repeats nor skips other files.
pub(crate) async fn list(
    client: &RunClient,
    cursor: Option<String>,
) -> Result<ListResourcesResult, ErrorData> {
    let after = cursor.map(|cursor| path_of_cursor(&cursor)).transpose()?;
    let request = GlobRequest { pattern: "**".to_owned(), max_results: Some(MOST), ..Default::default() };
    let response = client.call(Operation::Glob(request)).await.map_err(|status| error(&status))?;
    let Outcome::Glob(found) = outcome(response)? else { return Err(other_result()) };
    let (page, more) = page(found.paths, after.as_deref());
    let next = page.last().filter(|_| more).map(|path| URL_SAFE_NO_PAD.encode(path));
    let resources = page.iter().filter_map(|path| Some(Resource::new(uri::of_path(path)?, name(path))));
    let mut listed = ListResourcesResult::with_all_items(resources.collect());
    listed.next_cursor = next;
    Ok(listed.with_ttl_ms(0).with_cache_scope(CacheScope::Private))
}

/// Returns a page of sorted paths after one of them, and true if there are more.
fn page(mut paths: Vec<String>, after: Option<&str>) -> (Vec<String>, bool) {
    paths.sort_unstable();
    let begin = after.map_or(0, |after| paths.partition_point(|path| path.as_str() <= after));
    let mut page = paths.split_off(begin);
    let more = page.len() > PAGE;
    page.truncate(PAGE);
    (page, more)
}

fn path_of_cursor(cursor: &str) -> Result<String, ErrorData> {
    let path = (cursor.len() <= LONGEST_CURSOR).then(|| URL_SAFE_NO_PAD.decode(cursor).ok()).flatten();
    path.and_then(|path| String::from_utf8(path).ok())
        .ok_or_else(|| ErrorData::invalid_params("cursor: was not issued by this server", None))
}

/// Returns the path without the mount, which all paths have.
fn name(alias: &str) -> &str {
    alias.split_once('/').map_or(alias, |(_, path)| path)
}

/// Reads a file's whole content, as text or, if it is none, as a blob.
pub(crate) async fn read(client: &RunClient, uri: &str) -> Result<ReadResourceResult, ErrorData> {
    let path = uri::path_of(uri).ok_or_else(|| {
        let message = "uri: must be workspace:///PATH, with the path of a file in the workspace";
        ErrorData::resource_not_found(
            message,
            Some(json!({ "uri": uri.chars().take(256).collect::<String>() })),
        )
    })?;
    let text = whole(client, &path, ContentEncoding::Utf8).await?;
    let contents = if text.binary {
        let bytes = whole(client, &path, ContentEncoding::Base64).await?;
        ResourceContents::blob(bytes.content, uri).with_mime_type("application/octet-stream")
    } else {
        ResourceContents::text(text.content, uri).with_mime_type("text/plain")
    };
    Ok(ReadResourceResult::new(vec![contents]).with_ttl_ms(0).with_cache_scope(CacheScope::Private))
}

async fn whole(client: &RunClient, path: &str, encoding: ContentEncoding) -> Result<ReadResult, ErrorData> {
    let request = ReadRequest { path: path.to_owned(), encoding: encoding.into(), ..Default::default() };
    let response = client.call(Operation::Read(request)).await.map_err(|status| error(&status))?;
    let Outcome::Read(read) = outcome(response)? else { return Err(other_result()) };
    if read.truncated {
        let message = format!(
            "the file has {} bytes, more than can be read at once: read it in parts with the run's tools",
            read.size_bytes
        );
        return Err(ErrorData::invalid_params(message, Some(json!({ "reason": "READ_LIMIT" }))));
    }
    Ok(read)
}

fn outcome(response: CallResponse) -> Result<Outcome, ErrorData> {
    if response.status() == CallStatus::PendingApproval {
        let message = format!(
            "a reviewer has to approve this (approval {}): use the run's tools, which can wait for it",
            response.approval_id
        );
        return Err(ErrorData::internal_error(message, Some(json!({ "reason": "PENDING_APPROVAL" }))));
    }
    if let Some(failure) = response.error {
        let data = Some(json!({ "reason": failure.reason }));
        return Err(match failure.reason.as_str() {
            "NOT_FOUND" => ErrorData::resource_not_found(failure.message, data),
            _ => ErrorData::invalid_params(failure.message, data),
        });
    }
    response.into_kind().ok_or_else(other_result)
}

fn other_result() -> ErrorData {
    ErrorData::internal_error("the daemon's answer belongs to another request", None)
}

#[cfg(test)]
mod tests {
    use super::{PAGE, page, path_of_cursor};

    #[test]
    fn pages_follow_one_another_whatever_changes_meanwhile() {
        let names =
            |range: std::ops::Range<usize>| range.map(|n| format!("@project/{n:05}")).collect::<Vec<_>>();
        let (first, more) = page(names(0..PAGE + 5), None);
        assert!(more && first.len() == PAGE);
        // The last one of the page has gone, and one has come before it.
        let mut now = names(0..PAGE + 5);
        now.remove(PAGE - 1);
        now.push("@project/00000a".to_owned());
        let (second, more) = page(now, first.last().map(String::as_str));
        assert_eq!((second, more), (names(PAGE..PAGE + 5), false));
        assert_eq!(page(names(0..3), Some("@project/9")), (Vec::new(), false));
    }

    #[test]
    fn invalid_cursors_are_refused() {
        assert_eq!(path_of_cursor("QHByb2plY3QvYQ").unwrap(), "@project/a");
        for bad in ["*", "_w", &"A".repeat(10_000)] {
            assert!(path_of_cursor(bad).is_err(), "{bad}");
        }
    }
}
