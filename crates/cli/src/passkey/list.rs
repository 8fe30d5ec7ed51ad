//! `coffer passkey list`.

use clap::Args;
use wire::v1::{ListPasskeysRequest, Passkey};

use crate::client::{Client, Context, quick};
use crate::failure::{Ended, Failure};
use crate::output::Output;
use crate::time;

/// Digits of an id that are shown.
const SHOWN: usize = 16;

/// List passkeys, oldest first: your own, or those of all principals for operators and auditors.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer passkey list")]
pub(crate) struct List {}

impl List {
    pub(super) async fn run(self, context: &Context) -> Ended {
        let client = context.connect().await?;
        let passkeys = all(&client).await?;
        context.ui.answer_and_talk(passkeys, |passkeys, page, talk| {
            if passkeys.is_empty() {
                talk.own("no passkeys; reviewers register them in the console\n");
            } else {
                render(&passkeys, page);
            }
        })
    }
}

pub(super) async fn all(client: &Client) -> Result<Vec<Passkey>, Failure> {
    Ok(client.passkeys().list_passkeys(quick(ListPasskeysRequest {})).await?.into_inner().passkeys)
}

/// Returns the id of a passkey as people see it, lower-case hex.
pub(super) fn id(passkey: &Passkey) -> String {
    hex::encode(&passkey.credential_id)
}

/// Returns the end of the id, which may have 2,046 digits.
fn end(passkey: &Passkey) -> String {
    let id = id(passkey);
    id.get(id.len().saturating_sub(SHOWN)..).unwrap_or(&id).to_owned()
}

fn render(passkeys: &[Passkey], page: &mut Output) {
    let rows = passkeys.iter().map(|one| {
        let used = one.used_at.as_ref().map_or_else(|| "never".to_owned(), |at| time::moment(Some(at)));
        vec![
            end(one),
            one.principal.clone(),
            one.name.clone(),
            one.algorithm.clone(),
            time::moment(one.created_at.as_ref()),
            used,
        ]
    });
    page.table(&["PASSKEY", "PRINCIPAL", "NAME", "ALGORITHM", "REGISTERED", "USED"], rows);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Look;

    #[test]
    fn a_line_a_passkey() {
        let passkey = Passkey {
            credential_id: vec![0xab; 16],
            principal: "token:phone".into(),
            name: "phone".into(),
            algorithm: "ES256".into(),
            created_at: Some(wire::Timestamp::default()),
            used_at: None,
        };
        assert_eq!(id(&passkey), "ab".repeat(16));
        let mut page = Output::new(Look::PIPE);
        render(std::slice::from_ref(&passkey), &mut page);
        let line = page.as_str().lines().nth(1).unwrap();
        for word in ["abababab", "token:phone", "ES256", "1970-01-01", "never"] {
            assert!(line.contains(word), "{word}: {line}");
        }
    }
}
