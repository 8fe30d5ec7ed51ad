//! `coffer egress`: rules for connections out of runs.

mod learn;
mod suggest;

crate::verbs::verbs! {
    Suggest(suggest::Suggest),
    Learn(learn::Learn),
}
