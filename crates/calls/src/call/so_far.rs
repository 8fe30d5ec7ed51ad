//! The output of a command whose worker ended with its run, before it could report: as much of it as the spool has.

use std::sync::Arc;

use identity::{CallId, RunId};
use operations::ExecResult;
use refusal::chain;
use store::spool::{Spool, Stream};
use worker_protocol::client::{Clipped, clipped};

/// The call of a command, with the place of its output.
pub(super) struct Spooled<'c> {
    pub(super) spool: &'c Arc<Spool>,
    pub(super) run: RunId,
    pub(super) call: CallId,
    /// Bytes of each stream that have come.
    pub(super) came: [u64; 2],
    /// Bytes of each stream that the spool has.
    pub(super) kept: [u64; 2],
}

impl Spooled<'_> {
    /// Returns the output as the result of the command, at most `most` bytes of each stream. `None` if there is no output.
    pub(super) async fn result(&self, most: u64) -> Option<ExecResult> {
        if self.kept == [0; 2] {
            return None;
        }
        let stdout = self.text(Stream::Stdout, most).await;
        let stderr = self.text(Stream::Stderr, most).await;
        Some(ExecResult {
            stdout: stdout.text,
            stderr: stderr.text,
            stdout_bytes: self.came[0],
            stderr_bytes: self.came[1],
            stdout_omitted_bytes: stdout.omitted,
            stderr_omitted_bytes: stderr.omitted,
            ..Default::default()
        })
    }

    /// Returns the beginning and the end of a stream. The end of a part that the spool has is not that of the stream.
    async fn text(&self, stream: Stream, most: u64) -> Clipped {
        let (came, kept) = (self.came[stream.index()], self.kept[stream.index()]);
        let (first, last) = if came <= most { (kept, 0) } else { (most.div_ceil(2).min(kept), most / 2) };
        let last = if kept < came { 0 } else { last };
        let head = self.part(stream, 0, first).await;
        let tail = self.part(stream, kept - last, last).await;
        clipped(head, &tail, came)
    }

    /// Reads a part of a stream. A part that cannot be read, or no longer, is empty, so that it counts as left out.
    async fn part(&self, stream: Stream, offset: u64, bytes: u64) -> Vec<u8> {
        let most = usize::try_from(bytes).unwrap_or(usize::MAX);
        if most == 0 {
            return Vec::new();
        }
        match self.spool.read(self.run, self.call, stream, offset, most).await {
            Ok(piece) => piece.data,
            Err(error) => {
                tracing::error!(call = %self.call, error = %chain(&error), "the stored output of a command cannot be read");
                Vec::new()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use store::spool::Bounds;
    use store::{OutcomeBounds, Store};

    use super::*;

    #[tokio::test]
    async fn the_beginning_and_the_end_of_the_output_so_far_are_the_result() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(&directory.path().join("store.db"), OutcomeBounds::WIDE).unwrap();
        let bounds = Bounds { max_total: 1 << 20, min_free: 0 };
        let key = store.stream_key("spool").unwrap();
        let none = (HashSet::new(), HashSet::new());
        let spool = Spool::open(directory.path().to_owned(), bounds, key, &none.0, &none.1).unwrap();
        let (run, call) = (RunId::new(), CallId::new());
        let output = spool.output(run, call);
        let so_far = async |most: u64| {
            let (came, kept) = (output.came(), output.kept());
            Spooled { spool: &spool, run, call, came, kept }.result(most).await
        };
        assert_eq!(so_far(8).await, None);
        output.put(Stream::Stdout, 0, "äbcdefghij".into()).await;
        for (most, text, omitted) in [
            (11, "äbcdefghij", 0),
            (8, "äbc\n[… 3 bytes left out …]\nghij", 3),
            (1, "\n[… 11 bytes left out …]\n", 11),
        ] {
            let result = so_far(most).await.unwrap();
            let expected = ExecResult {
                stdout: text.to_owned(),
                stdout_bytes: 11,
                stdout_omitted_bytes: omitted,
                ..Default::default()
            };
            assert_eq!(result, expected, "{most}");
        }
        // A piece that the spool cannot store is not the end of what it has.
        output.put(Stream::Stdout, 12, "z".into()).await;
        for (most, text, omitted) in
            [(13, "äbcdefghij\n[… 2 bytes left out …]\n", 2), (8, "äbc\n[… 9 bytes left out …]\n", 9)]
        {
            let result = so_far(most).await.unwrap();
            let seen = (result.stdout.as_str(), result.stdout_bytes, result.stdout_omitted_bytes);
            assert_eq!(seen, (text, 13, omitted), "{most}");
        }
        // The spool needed the space for others.
        spool.remove_run(run).await;
        let result = so_far(11).await.unwrap();
        assert_eq!((result.stdout_bytes, result.stdout_omitted_bytes), (13, 13));
    }
}
