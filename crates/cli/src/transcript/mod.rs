//! `coffer transcript`: tool calls by fenced blocks in a model's text.

mod step;

crate::verbs::verbs! {
    Step(step::Step),
}
