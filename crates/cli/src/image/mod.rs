//! `coffer image`: the images that runs can use.

mod build;
mod context;
mod import;
mod list;
mod send;
mod show;

use wire::v1::Image;

use crate::output::Output;
use crate::quantity;

crate::verbs::verbs! {
    Import(import::Import),
    Build(build::Build),
    Push(transfer_commands::PushImage),
    List(list::List),
    Show(show::Show),
}

/// Describes an image that was just made.
fn made(image: &Image, talk: &mut Output) {
    talk.word(&image.reference).own(", ").word(&quantity::bytes(image.size_bytes));
    if !image.unusable.is_empty() {
        talk.own("; no run can use it: ").word(&image.unusable);
    } else if image.profiles.is_empty() {
        talk.own("; no profile allows it");
    } else {
        talk.own("; allowed by ").word(&image.profiles.join(", "));
    }
    talk.end_line();
}
