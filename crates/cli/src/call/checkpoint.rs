//! The result of a call to `checkpoint`, which agents make.

use wire::v1::{AgentCheckpoint, CheckpointResult};

use crate::output::Output;
use crate::quantity::bytes;

pub(super) fn render(result: &CheckpointResult, data: &mut Output, talk: &mut Output) {
    for checkpoint in result.made.iter().chain(&result.checkpoints) {
        line(checkpoint, data);
    }
    if result.truncated {
        talk.own("there are older checkpoints, which are not shown\n");
    }
    if let Some(before) = &result.before {
        data.own("restored ")
            .word(&result.restored_id)
            .own("; the state before is ")
            .word(&before.checkpoint_id)
            .end_line();
    }
}

fn line(checkpoint: &AgentCheckpoint, data: &mut Output) {
    data.word(&checkpoint.checkpoint_id).own("  ").word(&checkpoint.created_at).own("  ");
    data.word(&bytes(checkpoint.size_bytes)).own("  ").word(&checkpoint.label).end_line();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Look;

    #[test]
    fn checkpoints_are_lines_and_a_restore_names_the_state_before() {
        let checkpoint = |id: &str| AgentCheckpoint {
            checkpoint_id: id.to_owned(),
            label: "turn 1".to_owned(),
            created_at: "2026-01-02T03:04:05Z".to_owned(),
            size_bytes: 2048,
            files: 3,
        };
        let text = |result: &CheckpointResult| {
            let (mut page, mut talk) = (Output::new(Look::PIPE), Output::new(Look::PIPE));
            render(result, &mut page, &mut talk);
            (page.as_str().to_owned(), talk.as_str().to_owned())
        };
        let listed = CheckpointResult {
            checkpoints: vec![checkpoint("b"), checkpoint("a")],
            truncated: true,
            ..CheckpointResult::default()
        };
        let (lines, more) = text(&listed);
        assert_eq!(lines.lines().count(), 2);
        assert!(lines.starts_with("b  2026-01-02T03:04:05Z  ") && lines.contains("turn 1"), "{lines}");
        assert!(more.contains("older"));
        let restored = CheckpointResult {
            restored_id: "a".to_owned(),
            before: Some(checkpoint("c")),
            ..CheckpointResult::default()
        };
        assert_eq!(text(&restored).0, "restored a; the state before is c\n");
    }
}
