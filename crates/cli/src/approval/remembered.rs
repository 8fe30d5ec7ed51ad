//! `coffer approval remembered` and `coffer approval forget`.

use clap::Args;
use wire::v1::approval::Remember;
use wire::v1::{Consent, ListConsentsRequest, RevokeConsentRequest};

use crate::client::{Client, Context, quick};
use crate::failure::{Ended, Failure};
use crate::output::Output;
use crate::run_ref::RunRef;
use crate::{ids, time};

/// List the remembered consents, oldest first.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer approval remembered --run 3f2a9c01")]
pub(crate) struct Remembered {
    /// Only consents of this run.
    #[arg(long, value_name = "RUN")]
    run: Option<RunRef>,
}

/// Forget a remembered consent, so that reviewers are asked again.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer approval forget 9c01d4e2")]
pub(crate) struct Forget {
    /// The consent's id, or a unique beginning or end of it.
    #[arg(value_name = "CONSENT")]
    consent: String,
}

async fn list(client: &Client, run_id: String) -> Result<wire::v1::ListConsentsResponse, Failure> {
    Ok(client.approvals().list_consents(quick(ListConsentsRequest { run_id })).await?.into_inner())
}

impl Remembered {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let (client, run_id) = context.connect_to(self.run.as_ref()).await?;
        let response = list(&client, run_id).await?;
        context.ui.answer_and_talk(response, |response, page, talk| {
            if response.consents.is_empty() {
                talk.own("no remembered consents\n");
            } else {
                render(&response.consents, page);
            }
        })
    }
}

impl Forget {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let ui = context.ui;
        let client = context.connect().await?;
        let known = list(&client, String::new()).await?;
        let ids = known.consents.iter().map(|consent| consent.consent_id.as_str());
        let consent_id = ids::pick(ids, &self.consent, "consent", "coffer approval remembered")?.to_owned();
        let request = RevokeConsentRequest { consent_id };
        let response = client.approvals().revoke_consent(quick(request)).await?.into_inner();
        ui.answer(response, |response, page| {
            page.word(&response.consent.unwrap_or_default().consent_id).own(" forgotten\n");
        })
    }
}

fn render(consents: &[Consent], page: &mut Output) {
    let end = ids::ends(consents.iter().map(|consent| consent.consent_id.as_str()));
    let rows = consents.iter().map(|consent| {
        vec![
            end(&consent.consent_id),
            ids::short(&consent.run_id).into(),
            consent.operation.clone(),
            covers(consent),
            consent.given_by.clone(),
            time::moment(consent.given_at.as_ref()),
        ]
    });
    page.table(&["CONSENT", "RUN", "OPERATION", "COVERS", "GIVEN BY", "GIVEN AT"], rows);
}

fn covers(consent: &Consent) -> String {
    match consent.form() {
        Remember::Prefix => format!("{} …", consent.prefix.join(" ")),
        _ => format!("exactly {}", consent.digest.get(..12).unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Look;

    #[test]
    fn a_line_a_consent() {
        let consent = Consent {
            consent_id: "0198a1b2-0000-7000-8000-00000000aaaa".into(),
            run_id: "0198a1b2-0000-7000-8000-00000000bbbb".into(),
            operation: "exec".into(),
            form: Remember::Prefix.into(),
            prefix: vec!["cargo".into(), "test".into()],
            given_by: "uid:0".into(),
            given_at: Some(wire::Timestamp::default()),
            ..Default::default()
        };
        let exact = Consent { form: Remember::Digest.into(), digest: "ab".repeat(32), ..consent.clone() };
        assert_eq!(covers(&exact), "exactly abababababab");
        let mut page = Output::new(Look::PIPE);
        render(&[consent], &mut page);
        assert_eq!(
            page.as_str(),
            "CONSENT   RUN       OPERATION  COVERS        GIVEN BY  GIVEN AT\n\
             0000aaaa  0000bbbb  exec       cargo test …  uid:0     1970-01-01T00:00:00.000Z\n"
        );
    }
}
