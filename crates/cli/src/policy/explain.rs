//! `coffer policy explain`.

use clap::{Args, Parser, Subcommand};
use wire::v1::{CallRequest, ExplainPolicyRequest};

use super::explain_egress::ExplainEgress;
use crate::call;
use crate::client::{Context, quick};
use crate::failure::{Ended, Failure};
use crate::run_ref::RunRef;

/// Explain what the policy would decide about a call, by which rule, and which other rules were considered.
/// The call is not made.
#[derive(Args, Debug)]
#[command(
    before_help = "Example: coffer policy explain 3f2a9c01 exec -- cargo test",
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true
)]
pub(crate) struct Explain {
    #[command(subcommand)]
    subject: Option<Subject>,
    /// The run: its id, a unique beginning or end of it, or `-` for $COFFERDAM_RUN.
    #[arg(value_name = "RUN", required = true)]
    run: Option<String>,
    /// The operation, in the words of `coffer call`, such as `write a.txt --content x` or `git commit -m x`, or as the JSON
    /// of the API, such as {"read":{"path":"a.txt"}}.
    #[arg(value_name = "OPERATION", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    operation: Vec<String>,
}

/// Subjects that are no call.
#[derive(Debug, Subcommand)]
enum Subject {
    Egress(ExplainEgress),
}

/// The words of `coffer call`.
#[derive(Debug, Parser)]
#[command(name = "coffer policy explain RUN", disable_help_subcommand = true)]
struct Words {
    #[command(subcommand)]
    call: call::Command,
}

impl Explain {
    pub(super) async fn run(self, context: &Context) -> Ended {
        if let Some(Subject::Egress(egress)) = self.subject {
            return egress.run(context).await;
        }
        let run = self.run.as_deref().unwrap_or("-");
        if let [json] = &self.operation[..]
            && json.trim_start().starts_with('{')
        {
            return explain_json(context, run, json).await;
        }
        let words = Words::try_parse_from(arguments(run, &self.operation))
            .map_err(|error| Failure::usage(error.render().to_string().trim_end().to_owned()))?;
        if !words.call.is_operation() {
            return Err(Failure::usage("this makes no call; name an operation, such as `read a.txt`"));
        }
        let context = Context { ui: context.ui, daemon: context.daemon.clone(), explains: true };
        // The command of a call leads back to this module, so its future would contain a future of the same type.
        Box::pin(words.call.run(&context)).await
    }
}

async fn explain_json(context: &Context, run: &str, json: &str) -> Ended {
    let mut call: CallRequest = serde_json::from_str(json)
        .map_err(|error| Failure::usage(format!("the operation is not a CallRequest: {error}")))?;
    let client = context.connect().await?;
    let run: RunRef = run.parse().unwrap_or(RunRef::Environment);
    call.run_id = run.resolve(&client).await?;
    let request = ExplainPolicyRequest { call: Some(call) };
    call::show_explained(context.ui, &client.policy().explain_policy(quick(request)).await?.into_inner())
}

/// Converts the operation to a command line of `coffer call`, in which the run comes after the operation.
fn arguments(run: &str, operation: &[String]) -> Vec<String> {
    let (name, rest) = operation.split_first().map_or(("", operation), |(name, rest)| (name.as_str(), rest));
    let mut arguments = vec!["coffer".to_owned(), name.to_owned(), run.to_owned()];
    if name == "exec" && !rest.iter().any(|word| word == "--") {
        arguments.push("--".to_owned());
    }
    arguments.extend(rest.iter().cloned());
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Result<Words, clap::Error> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        Words::try_parse_from(arguments("0198a1b2-0000-7000-8000-00000000aaaa", &words))
    }

    #[test]
    fn the_arguments_of_coffer_call_are_accepted() {
        for words in [
            &["read", "a.txt", "--lines", "1-3"][..],
            &["exec", "--", "rm", "-rf", "x"],
            &["exec", "rm", "-rf", "x"],
            &["exec", "--cwd", "src", "--", "ls"],
            &["git", "diff", "--stat"],
            &["git", "commit", "-m", "x"],
            &["grep", "fn main"],
            &["delete", "a"],
            &["list"],
        ] {
            let words_ = parsed(words).unwrap_or_else(|error| panic!("{words:?}: {error}"));
            assert!(words_.call.is_operation(), "{words:?}");
        }
        assert!(!parsed(&["tools"]).unwrap().call.is_operation());
        assert!(parsed(&["teleport", "x"]).is_err() && parsed(&["read"]).is_err());
    }
}
