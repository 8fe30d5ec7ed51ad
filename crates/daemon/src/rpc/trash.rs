//! Serves `TrashService`.

use std::sync::Arc;

use identity::RunId;
use operations::{EntryType, Reason, TrashEntry};
use refusal::Refusal;
use runs::Runs;
use runs::trash::{Deleted, Trash};
use timestamp::UnixMillis;
use tonic::{Request, Response, Status};
use wire::v1;
use wire::v1::trash_service_server::TrashService;

use super::portion::{cut, page, piece};
use super::principal;

/// Maximum number of entries on a page. With the longest paths, they fit into one message.
const MAX_PAGE: u32 = 500;

#[derive(Clone)]
pub(crate) struct Service {
    pub(crate) runs: Arc<Runs>,
}

impl Service {
    /// Calls `work` with the trash of a run that the caller may use, on a thread that may block.
    ///
    /// Returns `None` if the trash is empty.
    async fn with<R, T: Send + 'static>(
        &self,
        request: &Request<R>,
        run_id: &str,
        work: impl FnOnce(&Trash) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<Option<T>, Refusal> {
        let run = self.runs.of(RunId::parse(run_id)?, &*principal(request)?)?.id;
        let private = self.runs.launcher.directories.private(&run.to_string());
        let done = tokio::task::spawn_blocking(move || {
            let trash =
                Trash::open(&private).map_err(|error| Refusal::internal("opening the trash", &error))?;
            trash.as_ref().map(work).transpose()
        });
        done.await.map_err(|error| Refusal::internal("reading the trash", &error))?
    }
}

#[tonic::async_trait]
impl TrashService for Service {
    async fn list_trash(
        &self,
        request: Request<v1::ListTrashRequest>,
    ) -> Result<Response<v1::ListTrashResponse>, Status> {
        let asked = request.get_ref();
        let (size, after) = page(asked.page_size, MAX_PAGE, &asked.page_token, TrashEntry::parse)?;
        let listed = self
            .with(&request, &asked.run_id, move |trash| {
                trash.list(after, size).map_err(|error| Refusal::internal("reading the trash", &error))
            })
            .await?;
        let (page, more) = listed.unwrap_or_default();
        let mut entries = page.into_iter().map(to_wire).collect();
        let more = cut(&mut entries, size) || more;
        let next_page_token = entries.last().filter(|_| more).map(|last| last.name.clone());
        let next_page_token = next_page_token.unwrap_or_default();
        Ok(Response::new(v1::ListTrashResponse { entries, next_page_token }))
    }

    async fn read_trash(
        &self,
        request: Request<v1::ReadTrashRequest>,
    ) -> Result<Response<v1::ReadTrashResponse>, Status> {
        let asked = request.get_ref();
        let most = piece("max_bytes", asked.max_bytes)?;
        let (entry, offset) = (TrashEntry::parse(&asked.entry).ok_or_else(no_such_entry)?, asked.offset);
        let found = self
            .with(&request, &asked.run_id, move |trash| {
                let deleted = trash.find(entry).ok_or_else(no_such_entry)?;
                let data = trash.read(entry, offset, most).ok_or_else(no_such_entry)?;
                let data = data.map_err(|error| Refusal::internal("reading the trash", &error))?;
                Ok(v1::ReadTrashResponse { entry: Some(to_wire(deleted)), data })
            })
            .await?;
        Ok(Response::new(found.ok_or_else(no_such_entry)?))
    }
}

fn no_such_entry() -> Refusal {
    Refusal::new(Reason::NotFound, "entry: the run's trash has no entry of this name")
        .with("resource", "entry")
}

fn to_wire(deleted: Deleted) -> v1::TrashEntry {
    let Deleted { entry, record } = deleted;
    let entry_type = match record.entry_type {
        EntryType::Directory => EntryType::Directory,
        _ => EntryType::File,
    };
    v1::TrashEntry {
        name: entry.to_string(),
        path: record.path,
        r#type: entry_type.into(),
        size_bytes: record.size_bytes,
        sha256: record.sha256,
        mode: record.mode,
        deleted_at: Some(UnixMillis(entry.deleted_unix_ms).to_wire()),
    }
}
