//! `coffer permission show`.

use clap::Args;
use wire::v1::Permission;

use super::list;
use crate::client::Context;
use crate::failure::Ended;
use crate::output::Output;
use crate::{ids, time};

/// Show a permission, also one that has ended.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer permission show 9c01d4e2")]
pub(crate) struct Show {
    /// The permission: its id, or a unique beginning or end of it.
    #[arg(value_name = "PERMISSION", value_parser = ids::part)]
    id: String,
}

impl Show {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let client = context.connect().await?;
        let known = list::all(&client, true).await?;
        let permission = ids::find(
            known,
            |permission| &permission.permission_id,
            &self.id,
            "permission",
            "coffer permission list --all",
        )?;
        context.ui.answer(permission, |permission, page| render(&permission, page))
    }
}

fn render(permission: &Permission, page: &mut Output) {
    page.facts(&[
        ("permission", permission.permission_id.clone()),
        ("effect", list::effect(permission).to_owned()),
        ("for", list::subject(permission)),
        ("operation", list::or_any(&permission.operation)),
        ("paths", permission.path_pattern.clone()),
        ("command", permission.command_prefix.join(" ")),
        ("until", list::until(permission)),
        ("made by", permission.created_by.clone()),
        ("created", time::known(permission.created_at.as_ref())),
        ("reason", permission.reason.clone()),
    ]);
}

#[cfg(test)]
mod tests {
    use wire::v1::permission::{Effect, Subject};

    use super::*;
    use crate::output::Look;

    #[test]
    fn facts_of_a_permission_are_shown() {
        let permission = Permission {
            permission_id: "0198a1b2-0000-7000-8000-00000000aaaa".into(),
            effect: Effect::Revocation.into(),
            subject: Some(Subject::Role("reviewer".into())),
            path_pattern: "src/**".into(),
            created_by: "uid:0".into(),
            reason: "release".into(),
            ..Default::default()
        };
        let mut page = Output::new(Look::PIPE);
        render(&permission, &mut page);
        assert_eq!(
            page.as_str(),
            "permission  0198a1b2-0000-7000-8000-00000000aaaa\n\
             effect      revocation\n\
             for         role reviewer\n\
             operation   any\n\
             paths       src/**\n\
             until       until ended\n\
             made by     uid:0\n\
             reason      release\n"
        );
    }
}
