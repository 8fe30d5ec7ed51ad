//! Any text is plain, or a block that is a part of it; any content comes back from its frame as it was.

use proptest::prelude::*;

use super::frame::{Frame, read};
use super::transcript::{Step, first};

/// Text made of what the grammar is made of.
fn texts() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "```",
        "````",
        "~~~",
        "forge:",
        "bash",
        "forge:write",
        "\n",
        "\r\n",
        " ",
        "{",
        "}",
        "{\"command\": \"ls\"}",
        "\"",
        "json",
        "[forge:tool]",
        "[/forge:tool]",
        "[\\/forge:tool]",
        "\\",
        "[",
        "/",
        "--- stdout (3 bytes) ---",
        "é",
        "\0",
        "</tool>",
    ]);
    let pieces = prop::collection::vec(piece, 0..30).prop_map(|pieces| pieces.concat());
    prop_oneof![4 => pieces, 1 => any::<String>()]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn a_block_is_a_part_of_its_text(text in texts()) {
        if let Step::Call(block) = first(&text) {
            let within = |part: &str| {
                let (begin, at) = (text.as_ptr() as usize, part.as_ptr() as usize);
                begin <= at && at + part.len() <= begin + text.len()
            };
            prop_assert!(text.starts_with(block.before) && within(block.tool) && within(block.arguments));
            prop_assert!(!block.tool.contains(char::is_whitespace));
            prop_assert_eq!(first(block.before), Step::Plain);
        }
    }

    #[test]
    fn a_block_is_found_after_any_closed_text(before in "[a-z \n]{0,40}", json in "\\{\"a\": \"[a-z`\\[\\]/]{0,20}\"\\}") {
        let text = format!("{before}\n```forge:bash\n{json}\n```\nmore");
        let Step::Call(block) = first(&text) else { panic!("{text:?}") };
        prop_assert_eq!((block.tool, block.arguments), ("bash", json.as_str()));
    }

    #[test]
    fn frames_parse_back(fact in texts(), one in texts(), other in texts()) {
        let frame = Frame::new("bash", "ok").fact("path", &fact).section("stdout", one.clone()).section("stderr", other.clone());
        let message = frame.write();
        prop_assert_eq!(message.matches("[forge:tool]").count(), 1);
        prop_assert_eq!(message.matches("[/forge:tool]").count(), 1);
        let again = read(&message);
        prop_assert_eq!(again.as_ref(), Some(&frame), "{}", message);
        let again = again.unwrap();
        prop_assert_eq!((again.text("stdout"), again.text("stderr")), (Some(one.as_str()), Some(other.as_str())));
    }

    #[test]
    fn any_message_is_a_frame_or_none(text in texts()) {
        if let Some(frame) = read(&text) {
            prop_assert_eq!(read(&frame.write()), Some(frame));
        }
    }
}
