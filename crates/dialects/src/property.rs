//! Every tool of every dialect, with arguments that are nearly right: an operation of the tool's own, or a failure that
//! names what is wrong in one line that stays short.

use operations::Reason;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::arguments::{expected, parameters};
use super::{Dialect, Limits, Tool, find, names};

fn tools() -> Vec<(&'static dyn Dialect, &'static Tool)> {
    let dialects = names().into_iter().map(|name| find(name).unwrap());
    dialects.flat_map(|dialect| dialect.tools().iter().map(move |tool| (dialect, tool))).collect()
}

/// Text that paths, patterns and hashes may be, and text that they may not.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => "(@(project|pkg|state)/)?[a-z./]{0,12}",
        1 => prop::sample::select(vec!["..", "a/../b", "/etc/passwd", "C:\\x", ".git/hooks/x", "-m", "--stat", ".", ""])
            .prop_map(str::to_owned),
        1 => "[(\\[{*+?|\\\\/]{0,8}",
        1 => "[0-9a-f]{64}",
        1 => any::<String>(),
        1 => (0..10_000_usize).prop_map(|length| "é".repeat(length)),
    ]
}

fn value(schema: &Value) -> BoxedStrategy<Value> {
    let right = match schema["type"].as_str().unwrap() {
        "string" => match schema["enum"].as_array() {
            Some(options) => prop::sample::select(options.clone()).boxed(),
            None => text().prop_map(Value::from).boxed(),
        },
        "integer" if schema.get("minimum").is_some() => {
            prop_oneof![0..30_u64, any::<u64>()].prop_map(Value::from).boxed()
        }
        "integer" => (-2..30_i64).prop_map(Value::from).boxed(),
        "boolean" => any::<bool>().prop_map(Value::from).boxed(),
        "array" => {
            let length =
                schema["minItems"].as_u64().map_or(0..5, |length| 2..usize::try_from(length + 1).unwrap());
            prop::collection::vec(value(&schema["items"]), length).prop_map(Value::from).boxed()
        }
        _ if schema.get("properties").is_some() => object(schema).boxed(),
        _ => any_object().boxed(),
    };
    let wrong = prop_oneof![
        Just(Value::Null),
        Just(json!({"a": [1]})),
        Just(json!([1, "a"])),
        Just(json!(-1)),
        Just(json!(1e300)),
        text().prop_map(Value::from),
    ];
    prop_oneof![8 => right, 1 => wrong].boxed()
}

fn any_object() -> impl Strategy<Value = Value> {
    prop::collection::vec((text(), text()), 0..4).prop_map(|members| {
        Value::Object(members.into_iter().map(|(name, value)| (name, value.into())).collect())
    })
}

/// Some of the members, and sometimes one that is none.
fn object(schema: &Value) -> impl Strategy<Value = Value> + use<> {
    let each: Vec<_> = parameters(schema)
        .map(|parameter| {
            let there = prop::bool::weighted(if parameter.required { 0.95 } else { 0.6 });
            (Just(parameter.name.to_owned()), value(parameter.schema), there)
        })
        .collect();
    (each, prop::option::weighted(0.05, text())).prop_map(|(each, unknown)| {
        let given = each.into_iter().filter(|(_, _, there)| *there).map(|(name, value, _)| (name, value));
        Value::Object(given.chain(unknown.map(|name| (name, json!(1)))).collect::<Map<_, _>>())
    })
}

/// The number of a tool, and its arguments.
fn call() -> impl Strategy<Value = (usize, Value)> {
    (0..tools().len()).prop_flat_map(|index| (Just(index), object(&tools()[index].1.schema)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn arguments_that_are_nearly_right_are_an_operation_or_a_short_failure(call in call()) {
        let (index, arguments) = call;
        let (dialect, tool) = tools()[index];
        match dialect.parse(tool.name, &arguments.to_string(), &Limits::default()) {
            Ok(operation) => {
                prop_assert!(tool.operations.contains(&operation.name()), "{:?}", operation);
                for parameter in parameters(&tool.schema).filter(|parameter| parameter.required) {
                    let given = &arguments[parameter.name];
                    prop_assert_eq!(expected(parameter.name, parameter.schema, given), None, "{}", given);
                }
            }
            Err(failure) => {
                let known = matches!(
                    failure.reason,
                    Reason::InvalidArgument | Reason::SandboxViolation | Reason::CommandNotAllowed
                );
                prop_assert!(known, "{:?}", failure);
                prop_assert!(failure.message.len() < 2_500, "{} bytes", failure.message.len());
                prop_assert!(!failure.message.contains(char::is_control), "{:?}", failure.message);
            }
        }
    }
}
