//! `coffer bundle`: the evidence of one run, in a file that anyone can verify.

mod create;
mod verify;

crate::verbs::verbs! {
    Create(create::Create),
    Verify(verify::Verify),
}
