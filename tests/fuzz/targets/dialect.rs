//! A model's arguments, whatever text they are, become an operation that is in bounds, or a failure that the model can
//! read.
//!
//! Input: one byte that picks the dialect's tool, then the arguments.

#![no_main]

use dialects::{Dialect, Limits, Made, find, forge, names};
use fuzz::{is_one_line, survives_the_wire, text};
use libfuzzer_sys::fuzz_target;
use operations::ToolFailure;
use serde_json::Value;

fuzz_target!(|data: &[u8]| {
    let Some((which, arguments)) = data.split_first() else { return };
    let arguments = text(arguments);
    let tools: Vec<(&'static dyn Dialect, &str)> = names()
        .into_iter()
        .filter_map(find)
        .flat_map(|dialect| dialect.tools().iter().map(move |tool| (dialect, tool.name)))
        .collect();
    let (dialect, tool) = tools[usize::from(*which) % tools.len()];
    match dialect.parse(tool, &arguments, &Limits::default()) {
        Ok(operation) => {
            let known = dialect.tool(tool).expect("a tool").operations;
            assert!(known.contains(&operation.name()), "{operation:?}");
            survives_the_wire(&operation);
        }
        Err(failure) => {
            let failure = ToolFailure::from(failure);
            assert!(is_one_line(&failure.message) && failure.message.len() < 4_000, "{failure:?}");
            let rendered = dialect.render(&Made::new(tool, None), &Err(failure));
            match dialect.name() {
                "fs" => {
                    let value: Value = serde_json::from_str(&rendered).expect("the union is JSON");
                    assert_eq!(value["ok"], false);
                }
                "exec" | "gateway" => {
                    let value: Value = serde_json::from_str(&rendered).expect("the answer is JSON");
                    assert!(!value["error"].is_null(), "{rendered}");
                }
                "forge" => assert!(forge::frame::read(&rendered).is_some(), "{rendered}"),
                _ => assert!(rendered.starts_with("Error: "), "{rendered}"),
            }
        }
    }
});
