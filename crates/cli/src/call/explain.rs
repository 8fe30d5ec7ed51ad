//! A call that is explained instead of made, for `coffer policy explain`.

use wire::v1::ExplainPolicyRequest;
use wire::v1::call_request::Request;

use super::{CallOptions, Target, prepare};
use crate::client::{Context, quick};
use crate::exit::Ended;
use crate::policy;

/// Asks what the policy says to the call, and shows it.
pub(super) async fn explain(
    context: &Context,
    target: &Target,
    options: CallOptions,
    request: impl Into<Request>,
) -> Ended {
    let client = context.connect().await?;
    let call = prepare(&client, target, options, request).await?;
    let request = ExplainPolicyRequest { call: Some(call) };
    let explained = client.policy().explain_policy(quick(request)).await?.into_inner();
    policy::show_explained(context.ui, &explained)
}
